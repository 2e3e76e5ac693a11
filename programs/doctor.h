/* doctor.h - what this machine offers, looked at by one file a group of checks.
 *
 * A group is a function in a table (cmd_doctor.c). It adds findings: facts, notes (something could
 * be better) and faults (something that was asked for cannot be), the last two with what to do
 * about them. Nothing here prints; the command does. */
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
    const char *device; // what was asked for with --device; NULL: what fits best
    const char *invite; // of a run to be joined; NULL: none
    const char *group;  // whose findings are being added
    strait_finding findings[STRAIT_DOCTOR_FINDINGS];
    int n; // findings past the last are dropped
};

void strait_doctor_fact(struct strait_doctor *doctor, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void strait_doctor_note(struct strait_doctor *doctor, const char *name, const char *fix,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
void strait_doctor_fault(struct strait_doctor *doctor, strait_err err, const char *name,
                         const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The first line of a small file, without its end; empty when it cannot be read. */
void strait_doctor_line(const char *path, char out[STRAIT_DOCTOR_TEXT]);

/* The groups. */
void strait_doctor_machine(struct strait_doctor *doctor);
void strait_doctor_network(struct strait_doctor *doctor);
void strait_doctor_cuda(struct strait_doctor *doctor);
void strait_doctor_use(struct strait_doctor *doctor);
void strait_doctor_invite(struct strait_doctor *doctor);
