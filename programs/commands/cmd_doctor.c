/* cmd_doctor.c - strait doctor: checks this machine and says how to fix what it lacks. */
#include "base/json.h"
#include "commands.h"
#include "doctor.h"
#include "invite_source.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *device;
static int is_json;

static const strait_flag flags[] = {
    {"device", 'd', STRAIT_FLAG_TEXT, &device, "KIND",
     "the device that must be usable: cpu or cuda (default: the best one)"},
    {"json", 0, STRAIT_FLAG_SWITCH, &is_json, NULL, "print one JSON object"},
    {0},
};

static const struct {
    const char *name;
    void (*look)(struct strait_doctor *doctor);
} groups[] = {
    {"machine", strait_doctor_machine}, {"network", strait_doctor_network},
    {"cuda", strait_doctor_cuda},       {"use", strait_doctor_use},
    {"run", strait_doctor_invite},
};

/* Adding findings. */

/* Too many findings are dropped: the table is fixed and larger than what the groups add. */
static void add(struct strait_doctor *doctor, strait_finding finding, const char *fix,
                const char *format, va_list args) {
    if (doctor->n == STRAIT_DOCTOR_FINDINGS) return;
    strait_finding *f = &doctor->findings[doctor->n++];
    *f = finding;
    f->group = doctor->group;
    (void)snprintf(f->fix, sizeof f->fix, "%s", fix);
    (void)vsnprintf(f->text, sizeof f->text, format, args);
}

/* The name is copied, so that callers may build it in a local buffer. */
static strait_finding begin(strait_finding_state state, strait_err err, const char *name) {
    strait_finding finding = {.state = state, .err = err};
    (void)snprintf(finding.name, sizeof finding.name, "%s", name);
    return finding;
}

/* Facts need no action and have no fix. */
void strait_doctor_fact(struct strait_doctor *doctor, const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(doctor, begin(STRAIT_FINDING_GOOD, STRAIT_OK, name), "", format, args);
    va_end(args);
}

/* Notes are worth a look but do not change the exit code. */
void strait_doctor_note(struct strait_doctor *doctor, const char *name, const char *fix,
                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(doctor, begin(STRAIT_FINDING_NOTE, STRAIT_OK, name), fix, format, args);
    va_end(args);
}

/* A fault prevents training; its error becomes the exit code. */
void strait_doctor_fault(struct strait_doctor *doctor, strait_err err, const char *name,
                         const char *fix, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(doctor, begin(STRAIT_FINDING_FAULT, err, name), fix, format, args);
    va_end(args);
}

/* Files of /proc and /sys are one line; a missing one is an empty text, not an error. */
void strait_doctor_line(const char *path, char out[STRAIT_DOCTOR_TEXT]) {
    out[0] = '\0';
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    if (fgets(out, STRAIT_DOCTOR_TEXT, file) == NULL) out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(file);
}

/* Printing them. */

/* Fixes follow the finding they belong to, so that the output can be read from top to bottom. */
static void print_findings(const struct strait_doctor *doctor) {
    const char *group = "";
    for (int i = 0; i < doctor->n; i++) {
        const strait_finding *f = &doctor->findings[i];
        if (strcmp(f->group, group) != 0) printf("%s%s\n", i > 0 ? "\n" : "", f->group);
        group = f->group;
        printf("%c %-16s %s\n", " ?!"[f->state], f -> name, f -> text);
        if (f->fix[0] != '\0') printf("  %-16s -> %s\n", "", f->fix);
    }
}

/* One object per group, one per finding: scripts read doctor.cuda.driver.value. */
static strait_err print_json(const struct strait_doctor *doctor) {
    static const char *const states[] = {"good", "note", "fault"};
    json_t *document = json_object();
    for (int i = 0; i < doctor->n; i++) {
        const strait_finding *f = &doctor->findings[i];
        json_t *group = json_object_get(document, f->group);
        if (group == NULL) {
            group = json_object();
            (void)json_object_set_new(document, f->group, group);
        }
        json_t *finding = json_pack("{s:s, s:s}", "state", states[f->state], "value", f->text);
        if (f->fix[0] != '\0') (void)json_object_set_new(finding, "fix", json_string(f->fix));
        (void)json_object_set_new(group, f->name, finding);
    }
    const int is_written = json_dumpf(document, stdout, JSON_COMPACT) == 0;
    json_decref(document);
    if (!is_written) return STRAIT_FAIL(STRAIT_ENOMEM, "doctor: no memory for its JSON");
    printf("\n");
    return STRAIT_OK;
}

/* The first fault decides the exit code; all of them were printed. */
static strait_err first_fault(const struct strait_doctor *doctor) {
    for (int i = 0; i < doctor->n; i++) {
        const strait_finding *f = &doctor->findings[i];
        if (f->state != STRAIT_FINDING_FAULT) continue;
        strait_err_note(__FILE__, __LINE__, "%s: %s: %s", f->group, f->name, f->text);
        return f->err;
    }
    return STRAIT_OK;
}

static strait_err run_doctor(int n_args, const char **args) {
    static struct strait_doctor doctor; // large
    if (n_args > 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "doctor needs one invite at most, but also got \"%s\"",
                           args[1]);
    if (device != NULL) STRAIT_TRY(strait_args_check_device(device, 0));
    doctor.device = device;
    doctor.invite = n_args == 1 ? args[0] : NULL;
    if (n_args == 1 && strcmp(args[0], "-") == 0) {
        static char line[STRAIT_INVITE_LINE];
        STRAIT_TRY(strait_invite_read_input(line));
        doctor.invite = line;
    }
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        doctor.group = groups[i].name;
        groups[i].look(&doctor);
    }
    if (is_json)
        STRAIT_TRY(print_json(&doctor));
    else
        print_findings(&doctor);
    return first_fault(&doctor);
}

const strait_command strait_cmd_doctor = {
    .name = "doctor",
    .usage = "[INVITE | -] [flags]",
    .summary = "check this machine and say how to fix problems",
    .about =
        "Checks processor, memory, disk, sandbox, TCP and NVIDIA devices of this machine, tries\n"
        "the device that will compute, and says what to write into run files. A line with ? could\n"
        "be better, a line with ! is a fault; both say what to do. With an invite, or - to read\n"
        "one from standard input, it also dials the coordinator, without joining. Exit code 0:\n"
        "no fault; 3: the disk; 4: the coordinator is out of reach; 5: device or memory; 6: the\n"
        "coordinator is not the one of the invite.",
    .flags = flags,
    .run = run_doctor,
    .examples = (const strait_example[]){{"strait doctor", "Checks this machine."},
                                         {"strait doctor --device cuda strait1:AQ...",
                                          "Checks the GPU, and the connection to a host."},
                                         {0}},
};
