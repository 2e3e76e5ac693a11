/* socket.c - see socket.h. */
#include "net/tls/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    UNSENT_MAX = 128 * 1024, // bytes the kernel may hold unsent: these can no longer be overtaken
    STREAMS_WITHOUT_BBR = 4
};

/* Failures are ignored: an old kernel or a container may lack an option (socket.h). */
static void set_int(int fd, int option, int value) {
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
}

static int set_bbr(int fd) {
    static const char name[] = "bbr";
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, sizeof name - 1) == 0;
}

void strait_socket_tune(int fd, int peer_timeout_ms, int is_far) {
    set_int(fd, TCP_NODELAY, 1);
    set_int(fd, TCP_NOTSENT_LOWAT, UNSENT_MAX);
    set_int(fd, TCP_USER_TIMEOUT, peer_timeout_ms);
    if (is_far) (void)set_bbr(fd);
}

int strait_socket_can_bbr(void) {
    /* The list of allowed algorithms differs between kernels and containers, so try it. */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    const int can = set_bbr(fd);
    (void)close(fd);
    return can;
}

int strait_socket_streams(int asked) {
    if (asked > 0) return asked;
    return strait_socket_can_bbr() ? 1 : STREAMS_WITHOUT_BBR;
}

void strait_socket_measure(int fd, strait_link_stats *stats) {
    struct tcp_info info;
    memset(&info, 0, sizeof info); // older kernels fill in only the first fields
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    stats->n_streams++;
    stats->tcp_rtt_s += (double)info.tcpi_rtt * 1e-6;
    stats->delivery_bps += (double)info.tcpi_delivery_rate * 8;
    stats->retransmits += info.tcpi_total_retrans;
    size = sizeof stats->congestion - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, stats->congestion, &size) != 0)
        stats->congestion[0] = 0;
}
