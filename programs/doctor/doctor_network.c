/* doctor_network.c - the TCP congestion control that this machine allows, and MPI. */
#include "doctor.h"
#include "net/mpi/world.h"
#include "net/tls/socket.h"

/* BBR does not take lost packets for congestion, which matters on internet links. */
static void look_at_congestion(struct strait_doctor *doctor) {
    char current[STRAIT_DOCTOR_TEXT];
    strait_doctor_line("/proc/sys/net/ipv4/tcp_congestion_control", current);
    if (strait_socket_can_bbr())
        strait_doctor_fact(doctor, "congestion", "bbr is allowed: one stream per link");
    else
        strait_doctor_note(doctor, "congestion",
                           "as root: modprobe tcp_bbr; sysctl -w "
                           "net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
                           "%s, bbr is not allowed: links use four streams and are slower on lossy "
                           "lines",
                           current[0] != '\0' ? current : "unknown");
}

/* Only clusters need MPI, so its absence is a fact; a module without its library is worth a look.
 */
static void look_at_mpi(struct strait_doctor *doctor) {
    char path[STRAIT_PATH_MAX];
    const char *name = "";
    if (strait_mpi_find(path, &name) == STRAIT_OK)
        strait_doctor_fact(doctor, "mpi", "%s by %s: mpirun and srun can start strait train", name,
                           path);
    else if (path[0] == '\0')
        strait_doctor_fact(doctor, "mpi",
                           "not installed: strait train cannot be started by mpirun and srun");
    else
        strait_doctor_note(doctor, "mpi",
                           "install Open MPI (libopenmpi3 of Debian), or compile the module with "
                           "this machine's MPI (docs/cluster.md)",
                           "%s", strait_err_detail());
}

void strait_doctor_network(struct strait_doctor *doctor) {
    look_at_congestion(doctor);
    look_at_mpi(doctor);
}
