#include "base/machine.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The names of the files of a control group, by version. */
struct group_files {
    const char *limit, *used, *cache;
};
static const struct group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file "},
                                version_2 = {"memory.max", "memory.current", "inactive_file "};

/* The number after `key` at the beginning of a line of a file, or the first number of the file
 * without a key; -1: there is none ("max" is none). */
static double number_in(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    char line[256];
    double number = -1.0;
    while (file != NULL && number < 0.0 && fgets(line, sizeof line, file) != NULL) {
        const size_t skip = key != NULL ? strlen(key) : 0;
        char *end = NULL;
        if (skip > 0 && strncmp(line, key, skip) != 0) continue;
        const double value = strtod(line + skip, &end);
        if (end != line + skip) number = value;
        if (skip == 0) break;
    }
    if (file != NULL) (void)fclose(file);
    return number;
}

/* MemAvailable also counts caches that the kernel would drop; free pages alone are far too few on a
 * machine that has read its shards. */
static double free_memory(const char *root) {
    char path[STRAIT_PATH_MAX];
    if (strait_file_path(path, "%s/proc/meminfo", root) != STRAIT_OK) return 0.0;
    const double kilobytes = number_in(path, "MemAvailable:");
    if (kilobytes > 0.0) return 1024.0 * kilobytes;
    return (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* What one group leaves. Pages of files count as used by a group, and the inactive ones are
 * dropped before it runs out. A limit of the size of the address space is none: `out` then stays
 * as it is, because memory is scarcer. */
static void apply_group(const char *folder, const struct group_files *files,
                        strait_machine_memory *out) {
    char path[3][STRAIT_PATH_MAX];
    if (strait_file_path(path[0], "%s/%s", folder, files->limit) != STRAIT_OK ||
        strait_file_path(path[1], "%s/%s", folder, files->used) != STRAIT_OK ||
        strait_file_path(path[2], "%s/memory.stat", folder) != STRAIT_OK)
        return;
    const double limit = number_in(path[0], NULL), used = number_in(path[1], NULL);
    const double cache = number_in(path[2], files->cache);
    if (limit < 0.0 || used < 0.0) return;
    double left = limit - used + (cache > 0.0 ? cache : 0.0);
    if (left > limit) left = limit;
    if (left < 1.0) left = 1.0; // 0 would mean unknown
    if (left >= out->spare) return;
    *out = (strait_machine_memory){.spare = left, .group_limit = limit};
}

/* Every group around ours limits us, too. Inside a container the folders of some are not mounted:
 * theirs cannot be read, and the container's own is the mount itself. */
static void apply_groups(const char *mount, const char *group, const struct group_files *files,
                         strait_machine_memory *out) {
    char folder[STRAIT_PATH_MAX];
    if (strait_file_path(folder, "%s%s", mount, group) != STRAIT_OK) return;
    while (strlen(folder) >= strlen(mount)) {
        apply_group(folder, files, out);
        char *slash = strrchr(folder, '/');
        if (slash == NULL) return;
        *slash = '\0';
    }
}

/* Whether "cpu,memory" names the controller of memory. */
static int has_memory(const char *controllers, size_t n) {
    static const char word[] = "memory";
    for (const char *at = controllers; at < controllers + n;) {
        const size_t length = strcspn(at, ",:");
        if (length == sizeof word - 1 && strncmp(at, word, length) == 0) return 1;
        at += length + 1;
    }
    return 0;
}

/* Lines are "4:memory:/path" of version 1 and "0::/path" of version 2, where both may be mounted.
 */
static void apply_line(const char *root, char *line, strait_machine_memory *out) {
    char mount[STRAIT_PATH_MAX];
    line[strcspn(line, "\n")] = '\0';
    const char *controllers = strchr(line, ':');
    const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) return;
    const size_t n = (size_t)(group - controllers - 1);
    if (has_memory(controllers + 1, n)) {
        if (strait_file_path(mount, "%s/sys/fs/cgroup/memory", root) == STRAIT_OK)
            apply_groups(mount, group + 1, &version_1, out);
    } else if (n == 0) {
        if (strait_file_path(mount, "%s/sys/fs/cgroup", root) == STRAIT_OK)
            apply_groups(mount, group + 1, &version_2, out);
        if (strait_file_path(mount, "%s/sys/fs/cgroup/unified", root) == STRAIT_OK)
            apply_groups(mount, group + 1, &version_2, out);
    }
}

strait_machine_memory strait_machine_read_memory(const char *root) {
    strait_machine_memory memory = {.spare = free_memory(root)};
    char line[STRAIT_PATH_MAX];
    if (strait_file_path(line, "%s/proc/self/cgroup", root) != STRAIT_OK) return memory;
    FILE *groups = fopen(line, "re");
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL)
        apply_line(root, line, &memory);
    if (groups != NULL) (void)fclose(groups);
    return memory;
}

double strait_machine_spare_bytes(void) {
    return strait_machine_read_memory("").spare;
}

/* A folder that is yet to be created lies on the disk of its parent. */
double strait_machine_spare_disk(const char *path) {
    char folder[STRAIT_PATH_MAX];
    struct statvfs disk;
    if (strait_file_path(folder, "%s", path) != STRAIT_OK) return -1.0;
    while (statvfs(folder, &disk) != 0) {
        char *slash = strrchr(folder, '/');
        if (strcmp(folder, ".") == 0 || strcmp(folder, "/") == 0) return -1.0;
        if (slash == NULL)
            (void)snprintf(folder, sizeof folder, ".");
        else
            slash[slash == folder] = '\0';
    }
    return (double)disk.f_bavail * (double)disk.f_frsize;
}
