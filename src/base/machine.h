/* machine.h - the free resources of this machine. */
#pragma once

typedef struct strait_machine_memory {
    double spare;       // bytes that this process may still take; 0: unknown
    double group_limit; // bytes of the control group (cgroup) that decides `spare`; 0: none does
} strait_machine_memory;

/* Free memory, including caches that the kernel would drop, or what the limits of this process's
 * control groups leave of it: memory.max of version 2, memory.limit_in_bytes of version 1, of the
 * group and of every group around it. `root` is "" or, for tests, a folder that holds proc/ and
 * sys/. */
strait_machine_memory strait_machine_read_memory(const char *root);

/* Bytes of memory that are available now, as above. 0: unknown. */
double strait_machine_spare_bytes(void);

/* Bytes that an unprivileged user may still write to the disk of `path`, or of its nearest parent
 * that exists. Below 0: unknown. */
double strait_machine_spare_disk(const char *path);
