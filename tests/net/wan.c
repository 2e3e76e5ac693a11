/* wan.c - wan RATE_BPS DELAY_MS NAMESPACE ADDRESS NAMESPACE ADDRESS
 *
 * Connects two named network namespaces by a wide-area link until its standard input ends. Each
 * gets a TUN device wan0 with its address in a /16 network. Prints "up" when the link is ready. */
#include "net/wanlink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int set_up(int fd, const char *address) {
    struct ifreq request = {.ifr_name = "wan0"};
    struct sockaddr_in where = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, address, &where.sin_addr) != 1) return 0;
    memcpy(&request.ifr_addr, &where, sizeof where);
    if (ioctl(fd, SIOCSIFADDR, &request) != 0) return 0;
    where.sin_addr.s_addr = htonl(0xffff0000);
    memcpy(&request.ifr_netmask, &where, sizeof where);
    if (ioctl(fd, SIOCSIFNETMASK, &request) != 0) return 0;
    request.ifr_qlen = 4096;
    (void)ioctl(fd, SIOCSIFTXQLEN, &request);
    request.ifr_flags = IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

/* Opens a TUN device inside a namespace; it stays open when this thread leaves the namespace. */
static int open_end(const char *namespace, const char *address) {
    char path[256];
    (void)snprintf(path, sizeof path, "/run/netns/%s", namespace);
    const int net = open(path, O_RDONLY | O_CLOEXEC);
    if (net < 0 || setns(net, CLONE_NEWNET) != 0) return -1;
    const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "wan0"};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const int is_good = tun >= 0 && fd >= 0 && ioctl(tun, TUNSETIFF, &request) == 0 &&
                        set_up(fd, address);
    (void)close(fd);
    (void)close(net);
    return is_good ? tun : -1;
}

int main(int argc, char **argv) {
    char byte;
    if (argc != 7) return 2;
    const wanlink_spec spec = {.rate_bps = strtod(argv[1], NULL),
                               .delay_ns = (int64_t)(strtod(argv[2], NULL) * 1e6),
                               .queue_ns = 200000000};
    const int a = open_end(argv[3], argv[4]);
    const int b = open_end(argv[5], argv[6]);
    struct wanlink *link = a >= 0 && b >= 0 ? wanlink_open(a, b, spec) : NULL;
    if (link == NULL) {
        perror("wan");
        return 1;
    }
    puts("up");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) == 1)
        continue;
    wanlink_close(link);
    return 0;
}
