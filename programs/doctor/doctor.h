/* doctor.h - checks of this machine, one file per group of checks.
 *
 * A group is a function in a table (cmd_doctor.c). It adds findings: facts, notes (something could
 * be better) and faults (a run would fail), the last two with what to do about them. Groups do not
 * print; the command does. */
#pragma once

#include <strait/error.h>

typedef enum strait_finding_state {
    STRAIT_FINDING_GOOD,
    STRAIT_FINDING_NOTE,
    STRAIT_FINDING_FAULT,
} strait_finding_state;

enum {
    STRAIT_DOCTOR_FINDINGS = 64,
    STRAIT_DOCTOR_TEXT = 384
};

typedef struct strait_finding {
    const char *group;
    strait_finding_state state;
    strait_err err; // of a fault: decides the exit code
    char name[32], text[STRAIT_DOCTOR_TEXT];
    char fix[STRAIT_DOCTOR_TEXT]; // empty for facts
} strait_finding;

struct strait_doctor {
    const char *device; // of --device; NULL: the best one
    const char *invite; // of a run to join; NULL: none
    const char *group;  // whose findings are being added
    strait_finding findings[STRAIT_DOCTOR_FINDINGS];
    int n; // findings beyond the capacity are dropped
};

/* Each adds a finding to the current group; `fix` says what to do. */
void strait_doctor_fact(struct strait_doctor *doctor, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void strait_doctor_note(struct strait_doctor *doctor, const char *name, const char *fix,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
void strait_doctor_fault(struct strait_doctor *doctor, strait_err err, const char *name,
                         const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The first line of a small file, without its newline; empty when it cannot be read. */
void strait_doctor_line(const char *path, char out[STRAIT_DOCTOR_TEXT]);

/* The groups of checks. */
void strait_doctor_machine(struct strait_doctor *doctor);
void strait_doctor_network(struct strait_doctor *doctor);
void strait_doctor_cuda(struct strait_doctor *doctor);
void strait_doctor_use(struct strait_doctor *doctor);
void strait_doctor_invite(struct strait_doctor *doctor);
