/* doctor_network.c - the TCP congestion control that this machine allows. */
#include "doctor.h"
#include "net/tls/socket.h"

/* BBR does not take lost packets for congestion, which matters on internet links. */
void strait_doctor_network(struct strait_doctor *doctor) {
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
