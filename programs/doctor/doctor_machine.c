/* doctor_machine.c - processor, memory, disk and clock. Linux. */
#include "base/machine.h"
#include "doctor.h"
#include "progress.h"
#include "sandbox/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const double gib = 1024.0 * 1024.0 * 1024.0;

/* The value of `key` in a file of "key: value" lines; empty if there is none. */
static void look_up(const char *path, const char *key, char out[STRAIT_DOCTOR_TEXT]) {
    char line[1024];
    out[0] = '\0';
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || colon == NULL) continue;
        (void)snprintf(out, STRAIT_DOCTOR_TEXT, "%s", colon + 1 + strspn(colon + 1, " \t"));
        out[strcspn(out, "\n")] = '\0';
        break;
    }
    if (file != NULL) (void)fclose(file);
}

/* Cores that the control group allows, quota divided by period; 0: no limit. */
static double allowed_cores(void) {
    char text[STRAIT_DOCTOR_TEXT];
    strait_doctor_line("/sys/fs/cgroup/cpu.max", text);
    char *end = NULL;
    const double quota = strtod(text, &end);
    const double period = strtod(end, NULL);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* Containers see all cores of the machine but may use only some: threads beyond that slow it down.
 */
static void look_at_processor(struct strait_doctor *doctor) {
    char model[STRAIT_DOCTOR_TEXT];
    static struct utsname system; // zeroed
    (void)uname(&system);
    look_up("/proc/cpuinfo", "model name", model);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const double allowed = allowed_cores();
    strait_doctor_fact(doctor, "system", "%s %s, %s", system.sysname, system.release,
                       system.machine);
    if (allowed > 0 && allowed < (double)cores - 0.5)
        strait_doctor_note(doctor, "processor",
                           "give the container more, or set device.threads to what it has",
                           "%s%s%ld cores, of which this control group may use %.1f", model,
                           model[0] != '\0' ? ", " : "", cores, allowed);
    else
        strait_doctor_fact(doctor, "processor", "%s%s%ld core%s", model,
                           model[0] != '\0' ? ", " : "", cores, cores == 1 ? "" : "s");
}

/* "1234 kB" in bytes. */
static double kilobytes(const char *key) {
    char text[STRAIT_DOCTOR_TEXT];
    look_up("/proc/meminfo", key, text);
    return 1024.0 * strtod(text, NULL);
}

/* Thresholds: below 256 MiB nothing trains; below 2 GiB only small models. */
static void look_at_memory(struct strait_doctor *doctor) {
    char all_text[32], free_text[32];
    const double all = kilobytes("MemTotal");
    const double free_bytes = strait_machine_spare_bytes();
    strait_progress_bytes(all, all_text);
    strait_progress_bytes(free_bytes, free_text);
    if (free_bytes < 0.25 * gib)
        strait_doctor_fault(doctor, STRAIT_ENOMEM, "memory",
                            "stop other programs, or use another machine", "%s, only %s free",
                            all_text, free_text);
    else if (free_bytes < 2 * gib)
        strait_doctor_note(
            doctor, "memory",
            "train.recompute: true and more stages need less; train --dry-run prints "
            "what a run needs",
            "%s, %s free: enough for small models", all_text, free_text);
    else
        strait_doctor_fact(doctor, "memory", "%s, %s free", all_text, free_text);
}

/* Checkpoints go into the current folder by default, so that is the disk to check. */
static void look_at_disk(struct strait_doctor *doctor) {
    char here[STRAIT_DOCTOR_TEXT / 2], text[32];
    struct statvfs disk;
    if (getcwd(here, sizeof here) == NULL) (void)snprintf(here, sizeof here, ".");
    if (statvfs(".", &disk) != 0 || access(".", W_OK) != 0) {
        strait_doctor_fault(doctor, STRAIT_EIO, "disk",
                            "change to another folder, or name one with train --out",
                            "%s is not writable", here);
        return;
    }
    const double bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    strait_progress_bytes(bytes, text);
    if (bytes < 1 * gib)
        strait_doctor_note(doctor, "disk",
                           "free disk space: a checkpoint takes 12 bytes per parameter",
                           "%s free in %s", text, here);
    else
        strait_doctor_fact(doctor, "disk", "%s free in %s", text, here);
}

/* Certificates and invites expire: with a clock that was never set, valid ones are refused. */
static void look_at_clock(struct strait_doctor *doctor) {
    enum {
        EARLIEST = 1767225600 // 2026-01-01, before this program existed
    };
    char text[64];
    struct tm parts;
    const time_t now = time(NULL);
    (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &parts));
    if (now < EARLIEST)
        strait_doctor_note(doctor, "clock", "set it, for example: timedatectl set-ntp true",
                           "%s: the clock is wrong", text);
    else
        strait_doctor_fact(doctor, "clock", "%s", text);
}

/* What strait join can confine itself with. */
static void look_at_sandbox(struct strait_doctor *doctor) {
    strait_sandbox_support support;
    strait_sandbox_probe(&support);
    if (!support.has_seccomp)
        strait_doctor_note(doctor, "sandbox",
                           "allow the system call seccomp in the container, or join only runs "
                           "that you trust, with --no-sandbox",
                           "no seccomp filters: strait join cannot confine itself");
    else if (support.landlock_abi == 0)
        strait_doctor_note(doctor, "sandbox",
                           "Linux 5.13 or newer with landlock in its list of security modules "
                           "(boot with lsm=landlock,...)",
                           "seccomp filters, but no landlock (%s): a worker can read this user's "
                           "files",
                           support.no_landlock);
    else
        strait_doctor_fact(doctor, "sandbox",
                           "seccomp filters and landlock (version %d): strait join confines "
                           "itself",
                           support.landlock_abi);
}

/* In the order in which a user would fix problems. */
void strait_doctor_machine(struct strait_doctor *doctor) {
    look_at_processor(doctor);
    look_at_memory(doctor);
    look_at_disk(doctor);
    look_at_clock(doctor);
    look_at_sandbox(doctor);
}
