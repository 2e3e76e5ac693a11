/* calls.h - the system calls that a confined worker may use, whatever their arguments.
 *
 * The list is the part that training, TLS, libuv, glibc and NVIDIA's driver need of what container
 * engines allow by default: drivers and libraries are used in such containers everywhere, so new
 * versions of them keep to it. Names that an architecture does not have are skipped. */
#pragma once

#define STRAIT_CALLS_MEMORY                                                                       \
    "brk", "get_mempolicy", "madvise", "mbind", "membarrier", "memfd_create", "mincore", "mlock", \
        "mlock2", "mlockall", "mmap", "mprotect", "mremap", "msync", "munlock", "munlockall",     \
        "mseal", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "set_mempolicy"

#define STRAIT_CALLS_THREADS                                                                      \
    "arch_prctl", "exit", "exit_group", "futex", "futex_waitv", "get_robust_list", "getcpu",      \
        "getpid", "getppid", "gettid", "prctl", "restart_syscall", "rseq", "rt_sigaction",        \
        "rt_sigpending", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",    \
        "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", \
        "sched_getparam", "sched_getscheduler", "sched_setaffinity", "sched_setattr",             \
        "sched_setparam", "sched_setscheduler", "sched_yield", "set_robust_list",                 \
        "set_tid_address", "sigaltstack", "wait4", "waitid"

#define STRAIT_CALLS_TIME                                                                         \
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday",     \
        "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun",     \
        "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", \
        "times"

#define STRAIT_CALLS_FILES                                                                         \
    "access", "close", "close_range", "dup", "dup2", "dup3", "eventfd", "eventfd2", "faccessat",   \
        "faccessat2", "fadvise64", "fallocate", "fcntl", "fdatasync", "flock", "fstat", "fstatfs", \
        "fsync", "ftruncate", "getcwd", "getdents", "getdents64", "ioctl", "lseek", "lstat",       \
        "newfstatat", "open", "openat", "pipe", "pipe2", "pread64", "preadv", "preadv2",           \
        "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", \
        "stat", "statfs", "statx", "sync_file_range", "umask", "write", "writev"

#define STRAIT_CALLS_NETWORK                                                                       \
    "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait",                \
        "epoll_pwait2", "epoll_wait", "getpeername", "getsockname", "getsockopt", "poll", "ppoll", \
        "pselect6", "recvfrom", "recvmmsg", "recvmsg", "select", "sendmmsg", "sendmsg", "sendto",  \
        "setsockopt", "shutdown", "signalfd4", "socketpair"

#define STRAIT_CALLS_QUERIES                                                                      \
    "capget", "fgetxattr", "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp",     \
        "getpriority", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", \
        "getuid", "getxattr", "lgetxattr", "sysinfo", "uname"

/* Refused in a worker that accepts no connections, on the CPU. */
#define STRAIT_CALLS_LISTEN "accept", "accept4", "listen"

/* Refused in a worker that writes no file. */
#define STRAIT_CALLS_CHANGE                                                                        \
    "chmod", "fchmod", "fchmodat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "rmdir", \
        "truncate", "unlink", "unlinkat"

/* What an attacker would try first fails with EPERM. Everything that is not in this file fails with
 * ENOSYS, so that libraries which try a newer system call first use the older one. */
#define STRAIT_CALLS_REFUSED                                                                     \
    "add_key", "bpf", "chroot", "delete_module", "execve", "execveat", "finit_module", "fork",   \
        "fsconfig", "fsmount", "fsopen", "init_module", "ioperm", "iopl", "kcmp",                \
        "kexec_file_load", "kexec_load", "keyctl", "mknod", "mknodat", "mount", "mount_setattr", \
        "move_mount", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",  \
        "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "pivot_root", "process_vm_readv",      \
        "process_vm_writev", "ptrace", "reboot", "request_key", "rt_sigqueueinfo",               \
        "rt_tgsigqueueinfo", "setns", "swapoff", "swapon", "umount2", "unshare", "userfaultfd",  \
        "vfork"
