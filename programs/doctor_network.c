/* doctor_network.c - what TCP may do here. */
#include "doctor.h"
#include "net/tls/socket.h"

void strait_doctor_network(struct strait_doctor *doctor) {
    char usual[STRAIT_DOCTOR_TEXT];
    strait_doctor_line("/proc/sys/net/ipv4/tcp_congestion_control", usual);
    if (strait_socket_can_bbr())
        strait_doctor_fact(doctor, "congestion", "bbr is allowed: one stream a link");
    else
        strait_doctor_note(doctor, "congestion",
                           "as root: modprobe tcp_bbr; sysctl -w "
                           "net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"",
                           "%s, bbr is not allowed: links take four streams, and lose more on "
                           "lossy lines",
                           usual[0] != '\0' ? usual : "unknown");
}
