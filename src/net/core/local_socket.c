#include "net/core/local_socket.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct strait_local_server {
    int fd;
    char path[STRAIT_PATH_MAX]; // to remove it
    dev_t device;               // of the socket's name, and
    ino_t inode;                // its inode: another process may have replaced it
};

/* The text of an errno value; strerror is not thread-safe. */
static const char *reason(int number) {
    const char *text = strerrordesc_np(number);
    return text != NULL ? text : "unknown error";
}

/* A socket's address has 108 bytes, a path may have more: the folder is opened and named by its
 * descriptor, which *folder_fd holds until the address was used. */
static strait_err address_of(const char *folder, const char *name, int *folder_fd,
                             struct sockaddr_un *out) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    *folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder_fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", folder, reason(errno));
    (void)snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", *folder_fd, name);
    return STRAIT_OK;
}

/* The mode is set before the socket has a name, so that nobody can open it in between. */
static int bind_private(int fd, const struct sockaddr_un *address) {
    return fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
           bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
           chmod(address->sun_path, S_IRUSR | S_IWUSR) == 0 && listen(fd, 8) == 0;
}

strait_err strait_local_open(const char *folder, const char *name,
                             struct strait_local_server **out) {
    struct sockaddr_un address;
    struct strait_local_server *server = NULL;
    int folder_fd = -1;
    STRAIT_TRY(strait_alloc(1, sizeof *server, "local socket", (void **)&server));
    server->fd = -1;
    strait_err err = strait_file_path(server->path, "%s/%s", folder, name);
    if (err == STRAIT_OK) err = address_of(folder, name, &folder_fd, &address);
    if (err == STRAIT_OK) {
        (void)unlink(server->path);
        server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (server->fd < 0 || !bind_private(server->fd, &address))
            err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot listen on a local socket: %s", server->path,
                              reason(errno));
    }
    struct stat named;
    if (err == STRAIT_OK && lstat(server->path, &named) == 0) {
        server->device = named.st_dev;
        server->inode = named.st_ino;
    }
    if (folder_fd >= 0) (void)close(folder_fd);
    if (err != STRAIT_OK)
        strait_local_close(&server);
    else
        *out = server;
    return err;
}

void strait_local_close(struct strait_local_server **server) {
    if (*server == NULL) return;
    if ((*server)->fd >= 0) {
        struct stat named;
        if (lstat((*server)->path, &named) == 0 && named.st_dev == (*server)->device &&
            named.st_ino == (*server)->inode)
            (void)unlink((*server)->path);
        (void)close((*server)->fd);
    }
    strait_alloc_free(*server);
    *server = NULL;
}

/* ---- one line in each direction ---- */

static int wait_for(int fd, short events, int64_t until_ns) {
    struct pollfd p = {.fd = fd, .events = events};
    const int64_t left_ms = (until_ns - strait_clock_ns()) / 1000000;
    return left_ms > 0 && poll(&p, 1, (int)left_ms) == 1;
}

/* Reads until the end of a line, which is replaced by a zero. Returns whether it came in time. */
static int read_line(int fd, char *out, size_t capacity, int64_t until_ns) {
    size_t n = 0;
    while (n < capacity && wait_for(fd, POLLIN, until_ns)) {
        const ssize_t got = recv(fd, out + n, capacity - n, 0);
        if (got <= 0) return 0;
        char *end = memchr(out + n, '\n', (size_t)got);
        n += (size_t)got;
        if (end == NULL) continue;
        *end = '\0';
        return 1;
    }
    return 0;
}

/* A reader that stops reading costs the caller no more than the time it set. */
static int write_all(int fd, const char *text, size_t n, int64_t until_ns) {
    while (n > 0 && wait_for(fd, POLLOUT, until_ns)) {
        const ssize_t put = send(fd, text, n, MSG_NOSIGNAL);
        if (put < 0) return 0;
        text += put;
        n -= (size_t)put;
    }
    return n == 0;
}

static int write_line(int fd, const char *text, int64_t until_ns) {
    return write_all(fd, text, strlen(text), until_ns) && write_all(fd, "\n", 1, until_ns);
}

/* ---- serving and asking ---- */

/* The mode of the socket protects it already; this holds where a file system ignores modes. */
static int is_own_user(int fd) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return 0;
    return who.uid == geteuid() || who.uid == 0;
}

static void serve_one(int fd, strait_local_answer *answer, void *user) {
    char request[STRAIT_LOCAL_REQUEST_MAX];
    const int64_t until = strait_clock_ns() + STRAIT_LOCAL_WAIT_MS * INT64_C(1000000);
    if (!is_own_user(fd) || !read_line(fd, request, sizeof request, until)) return;
    char *text = answer(user, request);
    if (text != NULL)
        (void)write_line(fd, text, strait_clock_ns() + STRAIT_LOCAL_WAIT_MS * INT64_C(1000000));
    strait_alloc_free(text);
}

void strait_local_serve(struct strait_local_server *server, strait_local_answer *answer,
                        void *user) {
    if (server == NULL) return;
    for (;;) {
        const int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) return;
        serve_one(fd, answer, user);
        (void)close(fd);
    }
}

/* The whole answer must come in time, however slowly its bytes arrive. */
static strait_err ask(int fd, const char *request, int timeout_ms, char **out) {
    void *memory = NULL;
    const int64_t until = strait_clock_ns() + (int64_t)timeout_ms * 1000000;
    STRAIT_TRY(strait_alloc_unset(1, STRAIT_LOCAL_ANSWER_MAX, "answer", &memory));
    if (write_line(fd, request, until) && read_line(fd, memory, STRAIT_LOCAL_ANSWER_MAX, until)) {
        *out = memory;
        return STRAIT_OK;
    }
    strait_alloc_free(memory);
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "no answer within %d ms: the program is busy, or it "
                       "belongs to another user",
                       timeout_ms);
}

strait_err strait_local_ask(const char *folder, const char *name, const char *request,
                            int timeout_ms, char **out) {
    struct sockaddr_un address;
    int folder_fd = -1;
    STRAIT_TRY(address_of(folder, name, &folder_fd, &address));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strait_err err = STRAIT_OK;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        err = STRAIT_FAIL(STRAIT_ECLOSED, "%s/%s: %s", folder, name, reason(errno));
    else
        err = ask(fd, request, timeout_ms, out);
    if (fd >= 0) (void)close(fd);
    (void)close(folder_fd);
    return err;
}
