/* paths.c - the files of the system that a worker reads: libraries, name resolution, TLS settings,
 * the time zone, and what describes the machine. No folder of a user is among them. */
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const read_always[] = {
    /* libraries, also those that name resolution opens later */
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64",
    "/etc/ld.so.cache", "/etc/ld.so.preload", "/nix/store", "/gnu/store",
    /* name resolution; its files may be replaced while the worker runs, so the folders of those
     * that write them are readable, too */
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
    "/etc/services", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf",
    /* OpenSSL, locale, time zone */
    "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies", "/usr/share/locale",
    "/usr/share/zoneinfo", "/etc/localtime",
    /* this process and the machine */
    "/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm", "/dev/zero", "/dev/random",
    "/dev/urandom", NULL};

static const char *const read_for_cuda[] = {"/usr/local",    "/usr/share/nvidia",
                                            "/etc/nvidia",   "/run/opengl-driver",
                                            "/run/nvidia",   "/proc/driver",
                                            "/proc/devices", "/proc/modules",
                                            "/proc/version", "/proc/filesystems",
                                            "/proc/sys/vm",  "/proc/sys/kernel",
                                            "/sys",          NULL};

/* Beginnings of names in /dev: NVIDIA's driver, its boards with one memory, and WSL. */
static const char *const devices[] = {"nvidia", "nvhost", "nvmap", "nvgpu", "dxg", NULL};

/* NVIDIA's driver names its threads by writing to TID/comm there, and does not start if it cannot.
 * What else can be written there concerns this process alone. */
static const char threads[] = "/proc/self/task";

typedef strait_err (*add_function)(void *user, const char *path, strait_sandbox_access access);

static strait_err add_list(const char *const *paths, void *user, add_function add) {
    for (; *paths != NULL; paths++)
        STRAIT_TRY(add(user, *paths, STRAIT_SANDBOX_READ));
    return STRAIT_OK;
}

static strait_err add_device(const char *name, void *user, add_function add) {
    char path[PATH_MAX];
    for (const char *const *begin = devices; *begin != NULL; begin++) {
        if (strncmp(name, *begin, strlen(*begin)) != 0) continue;
        (void)snprintf(path, sizeof path, "/dev/%s", name);
        return add(user, path, STRAIT_SANDBOX_DEVICE);
    }
    return STRAIT_OK;
}

static strait_err add_devices(void *user, add_function add) {
    strait_err err = STRAIT_OK;
    DIR *folder = opendir("/dev");
    if (folder == NULL) return STRAIT_OK; // no device can be used then, either
    const struct dirent *entry = NULL;
    while (err == STRAIT_OK &&
           (entry = readdir(folder)) != NULL) // NOLINT(concurrency-mt-unsafe): a stream of our own
        err = add_device(entry->d_name, user, add);
    (void)closedir(folder);
    return err;
}

strait_err strait_sandbox_paths(int uses_cuda, void *user, add_function add) {
    STRAIT_TRY(add_list(read_always, user, add));
    STRAIT_TRY(add(user, "/dev/null", STRAIT_SANDBOX_DEVICE));
    if (!uses_cuda) return STRAIT_OK;
    STRAIT_TRY(add_list(read_for_cuda, user, add));
    STRAIT_TRY(add(user, threads, STRAIT_SANDBOX_DEVICE));
    return add_devices(user, add);
}
