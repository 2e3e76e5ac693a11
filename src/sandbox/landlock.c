/* landlock.c - which files the process may open from now on.
 *
 * The kernel's interface grows by versions ("ABI"). A right that a version does not know must not
 * be asked for, and what it does not handle stays allowed. Headers of a distribution may be older
 * than its kernel, so what is needed of them is defined here. */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* System calls have these numbers on all architectures. */
enum {
    CREATE_RULESET = 444,
    ADD_RULE = 445,
    RESTRICT_SELF = 446,
    GET_VERSION = 1,  // flag of CREATE_RULESET
    PATH_BENEATH = 1, // kind of rule

    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_ALL_V1 = (1 << 13) - 1, // also creating and removing every kind of file
    FS_REMOVE_FILE = 1 << 5,
    FS_MAKE_REG = 1 << 8,
    FS_REFER = 1 << 13,           // version 2: rename between folders
    FS_TRUNCATE = 1 << 14,        // version 3
    FS_IOCTL_DEV = 1 << 15,       // version 5
    NET_BIND_TCP = 1 << 0,        // version 4
    SCOPE_ABSTRACT_UNIX = 1 << 0, // version 6: connect to abstract sockets of other processes
    SCOPE_SIGNAL = 1 << 1         // version 6: send signals to other processes
};

struct ruleset_attr { // a kernel ignores zeros in fields that it does not know
    uint64_t handled_access_fs, handled_access_net, scoped;
};

struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

struct ruleset {
    int fd;
    uint64_t handled;
};

int strait_sandbox_landlock_abi(const char **why) {
    const long abi = syscall(CREATE_RULESET, NULL, 0, GET_VERSION);
    *why = "";
    if (abi > 0) return (int)abi;
    *why = errno == EOPNOTSUPP ? "turned off when the kernel was started"
           : errno == EPERM    ? "forbidden by the container"
                               : "this kernel has none";
    return 0;
}

static uint64_t rights_of(strait_sandbox_access access, int is_folder) {
    const uint64_t read = FS_READ_FILE | FS_READ_DIR;
    const uint64_t write = FS_WRITE_FILE | FS_TRUNCATE | FS_MAKE_REG | FS_REMOVE_FILE | FS_REFER;
    const uint64_t device = FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    /* Rights on the entries of a folder cannot be given for a file. */
    const uint64_t of_file = FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    const uint64_t rights = access == STRAIT_SANDBOX_READ    ? read
                            : access == STRAIT_SANDBOX_WRITE ? read | write
                                                             : device | FS_READ_DIR;
    return is_folder ? rights : rights & of_file;
}

/* A rule belongs to the file or folder that a path names now. Entries of /proc are created when
 * they are looked up: an open descriptor keeps ours the same one for the life of the process. */
static strait_err add_path(void *user, const char *path, strait_sandbox_access access) {
    const struct ruleset *r = user;
    struct stat about;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return STRAIT_OK; // not on this system, or not for this user
    const int is_folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
    const struct path_beneath_attr rule = {
        .allowed_access = rights_of(access, is_folder) & r->handled, .parent_fd = fd};
    const int failed = rule.allowed_access != 0 &&
                       syscall(ADD_RULE, r->fd, PATH_BENEATH, &rule, 0) != 0;
    const int why = errno;
    if (strncmp(path, "/proc/", 6) != 0) (void)close(fd);
    if (!failed) return STRAIT_OK;
    return strait_sandbox_fail(path, why);
}

static strait_err add_all(struct ruleset *r, const strait_sandbox_spec *spec) {
    STRAIT_TRY(strait_sandbox_paths(spec->uses_cuda, r, add_path));
    for (const char *const *path = spec->reads; path != NULL && *path != NULL; path++)
        STRAIT_TRY(add_path(r, *path, STRAIT_SANDBOX_READ));
    for (const char *const *path = spec->writes; path != NULL && *path != NULL; path++)
        STRAIT_TRY(add_path(r, *path, STRAIT_SANDBOX_WRITE));
#ifdef STRAIT_PROFILE_FOLDER // coverage is measured: the process writes it when it ends
    STRAIT_TRY(add_path(r, STRAIT_PROFILE_FOLDER, STRAIT_SANDBOX_WRITE));
#endif
    return STRAIT_OK;
}

strait_err strait_sandbox_landlock(const strait_sandbox_spec *spec, int abi) {
    struct ruleset_attr attr = {.handled_access_fs = FS_ALL_V1};
    if (abi >= 2) attr.handled_access_fs |= FS_REFER;
    if (abi >= 3) attr.handled_access_fs |= FS_TRUNCATE;
    if (abi >= 4 && !spec->may_listen) attr.handled_access_net = NET_BIND_TCP; // no rule: no port
    if (abi >= 5) attr.handled_access_fs |= FS_IOCTL_DEV;
    if (abi >= 6) attr.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
    struct ruleset r = {.fd = (int)syscall(CREATE_RULESET, &attr, sizeof attr, 0),
                        .handled = attr.handled_access_fs};
    if (r.fd < 0) return strait_sandbox_fail("landlock", errno);
    strait_err err = add_all(&r, spec);
    if (err == STRAIT_OK && syscall(RESTRICT_SELF, r.fd, 0) != 0)
        err = strait_sandbox_fail("landlock", errno);
    (void)close(r.fd);
    return err;
}
