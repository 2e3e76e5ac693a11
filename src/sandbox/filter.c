/* filter.c - which system calls the process may use from now on.
 *
 * Calls are allowed by name (calls.h), some only with certain arguments. The kernel compares whole
 * registers, so an argument with bits beyond its type matches no rule and is refused. */
#include "sandbox/calls.h"
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    KIND_OF_SOCKET = 0xf,  // SOCK_STREAM and so on, without SOCK_CLOEXEC and SOCK_NONBLOCK
    NETLINK_OF_ROUTES = 0, // with it getaddrinfo lists the addresses of this machine
    IOCTL_LINUX = 0x541c,  // TIOCLINUX: pastes into a console
    NEW_NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                     CLONE_NEWPID | CLONE_NEWNET
};

/* A filter under construction. The first error is kept: later calls do nothing. */
struct filter {
    scmp_filter_ctx context;
    int status; // of libseccomp: 0 or a negative errno
};

static void add(struct filter *f, uint32_t action, const char *name, unsigned n,
                const struct scmp_arg_cmp *conditions) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call < 0 || f->status != 0) return; // not on this architecture, or too new for libseccomp
    f->status = seccomp_rule_add_array(f->context, action, call, n, conditions);
}

static void allow_if(struct filter *f, const char *name, struct scmp_arg_cmp condition) {
    add(f, SCMP_ACT_ALLOW, name, 1, &condition);
}

static void refuse_if(struct filter *f, const char *name, struct scmp_arg_cmp condition) {
    add(f, SCMP_ACT_ERRNO(EPERM), name, 1, &condition);
}

static void add_all(struct filter *f, uint32_t action, const char *const *names) {
    for (; *names != NULL; names++)
        add(f, action, *names, 0, NULL);
}

/* Internet sockets only: no unix sockets, behind which other programs of this user, such as the
 * session bus, take commands. NVIDIA's driver needs one of a kind that those programs do not use.
 */
static void allow_sockets(struct filter *f, int uses_cuda) {
    static const int families[] = {AF_INET, AF_INET6};
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 4; i++) {
        const struct scmp_arg_cmp conditions[] = {
            SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i / 2]),
            SCMP_A1(SCMP_CMP_MASKED_EQ, KIND_OF_SOCKET, (scmp_datum_t)kinds[i % 2])};
        add(f, SCMP_ACT_ALLOW, "socket", 2, conditions);
    }
    const struct scmp_arg_cmp routes[] = {SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
                                          SCMP_A2(SCMP_CMP_EQ, NETLINK_OF_ROUTES)};
    add(f, SCMP_ACT_ALLOW, "socket", 2, routes);
    if (!uses_cuda) {
        refuse_if(f, "socket", SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
        return;
    }
    const struct scmp_arg_cmp packets[] = {
        SCMP_A0(SCMP_CMP_EQ, AF_UNIX), SCMP_A1(SCMP_CMP_MASKED_EQ, KIND_OF_SOCKET, SOCK_SEQPACKET)};
    add(f, SCMP_ACT_ALLOW, "socket", 2, packets);
}

/* Threads, but no processes; signals and limits of this process only. Without clone3, whose
 * arguments a filter cannot see, glibc uses clone. */
static void allow_threads(struct filter *f) {
    const scmp_datum_t self = (scmp_datum_t)getpid();
    allow_if(f, "clone", SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | NEW_NAMESPACES, CLONE_THREAD));
    allow_if(f, "kill", SCMP_A0(SCMP_CMP_EQ, self));
    allow_if(f, "tgkill", SCMP_A0(SCMP_CMP_EQ, self));
    allow_if(f, "prlimit64", SCMP_A0(SCMP_CMP_EQ, 0));
    allow_if(f, "prlimit64", SCMP_A0(SCMP_CMP_EQ, self));
}

static void begin(struct filter *f, uint32_t otherwise) {
    f->context = seccomp_init(otherwise);
    f->status = f->context != NULL ? 0 : -ENOMEM;
    /* For all threads of the process; no_new_privs is set already. */
    if (f->status == 0) f->status = seccomp_attr_set(f->context, SCMP_FLTATR_CTL_TSYNC, 1);
    if (f->status == 0) f->status = seccomp_attr_set(f->context, SCMP_FLTATR_CTL_NNP, 0);
}

static strait_err finish(struct filter *f) {
    if (f->status == 0) f->status = seccomp_load(f->context);
    seccomp_release(f->context);
    if (f->status == 0) return STRAIT_OK;
    return strait_sandbox_fail("seccomp", -f->status);
}

static void refuse_open(struct filter *f, const char *name, unsigned at) {
    static const scmp_datum_t flags[][2] = {
        {O_ACCMODE, O_WRONLY}, {O_ACCMODE, O_RDWR}, {O_CREAT, O_CREAT}, {O_TRUNC, O_TRUNC}};
    for (int i = 0; i < 4; i++)
        refuse_if(f, name, SCMP_CMP(at, SCMP_CMP_MASKED_EQ, flags[i][0], flags[i][1]));
}

/* Allows everything but a few arguments of calls that are otherwise allowed: a filter of its own,
 * since one filter cannot allow all arguments but some. They are text fed to the terminal as if the
 * user had typed it and, in a worker that writes no file, opening one to write, also where there is
 * no landlock. */
static strait_err refuse_arguments(int may_write) {
    struct filter f;
    begin(&f, SCMP_ACT_ALLOW);
    refuse_if(&f, "ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, TIOCSTI));
    refuse_if(&f, "ioctl", SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, IOCTL_LINUX));
    if (!may_write) {
        refuse_open(&f, "open", 1);
        refuse_open(&f, "openat", 2);
    }
    return finish(&f);
}

static int may_write(const strait_sandbox_spec *spec) {
#ifdef STRAIT_PROFILE_FOLDER // see landlock.c
    return 1;
#endif
    return spec->uses_cuda || (spec->writes != NULL && spec->writes[0] != NULL);
}

strait_err strait_sandbox_filter(const strait_sandbox_spec *spec) {
    static const char *const always[] = {STRAIT_CALLS_MEMORY,
                                         STRAIT_CALLS_THREADS,
                                         STRAIT_CALLS_TIME,
                                         STRAIT_CALLS_FILES,
                                         STRAIT_CALLS_NETWORK,
                                         STRAIT_CALLS_QUERIES,
                                         NULL};
    static const char *const listening[] = {STRAIT_CALLS_LISTEN, NULL};
    static const char *const changing[] = {STRAIT_CALLS_CHANGE, NULL};
    static const char *const refused[] = {STRAIT_CALLS_REFUSED, NULL};
    struct filter f;
    STRAIT_TRY(refuse_arguments(may_write(spec)));
    begin(&f, SCMP_ACT_ERRNO(ENOSYS));
    add_all(&f, SCMP_ACT_ALLOW, always);
    add_all(&f, SCMP_ACT_ERRNO(EPERM), refused);
    const int may_listen = spec->may_listen || spec->uses_cuda; // its driver does, see landlock.c
    add_all(&f, may_listen ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), listening);
    add_all(&f, may_write(spec) ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), changing);
    allow_sockets(&f, spec->uses_cuda);
    allow_threads(&f);
    return finish(&f);
}
