#include "liar/lies.h"

#include "liar/messages.h"
#include "liar/values.h"
#include "stage/boundary/boundary.h"
#include "stage/commands.h"
#include "swarm/snapshot/header.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RULES_MAX = 64,
    REPORTED = 3 // messages per rule
};

typedef enum act {
    LIE,
    DROP,
    DUPLICATE,
    DELAY,
    SHORT,
    LONG,
    ZERO,
    FLIP,
    FILL,
    N_ACTS
} act;

static const char *const act_names[N_ACTS] = {
    "--lie", "--drop", "--duplicate", "--delay", "--short", "--long", "--zero", "--flip", "--fill"};

struct rule {
    act act;
    char target[MESSAGE_NAME]; // of LIE: a field; else a message
    const char *value;         // of LIE and DELAY
    int64_t from_step;
    int left;     // how often it still applies
    int is_again; // only to crossings that are sent again
    int n_told;
};

/* One lock guards everything here: each mesh of a worker has a net thread of its own. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int n_rules;
static int64_t step;        // of training, as the messages sent show it
static int64_t newest_step; // of all crossings so far
static int is_sent_again;   // the message is a crossing of an earlier step
static struct parcel parcel;
static struct value_memory memory;

/* ---- parsing ---- */

/* Whether some message has this field, or some message or kind has this name. */
static int is_target(const char *target, int is_field) {
    struct strait_msg frame = {0};
    void *at = NULL;
    for (int i = 0; message_at(i) != NULL; i++) {
        parcel.row = message_at(i);
        for (int k = 0; k == 0 || k < parcel.row->n_kinds; k++) {
            parcel.kind = k > 0 ? parcel.row->named(k)->name : "";
            parcel.body = k > 0 ? parcel.row->body(k) : NULL;
            if (is_field ? parcel_find(&parcel, &frame, target, &at) != NULL
                         : parcel_is(&parcel, target))
                return 1;
        }
    }
    return 0;
}

static int fail(const char *what, const char *argument) {
    fprintf(stderr, "liar: %s: '%s'\n", what, argument);
    return -1;
}

static int add_rule(act what, const char *argument) {
    struct rule *rule = &rules[n_rules];
    const size_t n = strcspn(argument, "=");
    const int has_value = argument[n] == '=';
    if (n_rules == RULES_MAX) return fail("too many rules", argument);
    if (n >= sizeof rule->target) return fail("the name is too long", argument);
    if (has_value != (what == LIE || what == DELAY))
        return fail(has_value ? "takes no value" : "needs a value", argument);
    *rule = (struct rule){.act = what, .left = INT_MAX};
    memcpy(rule->target, argument, n);
    rule->value = argument + n + has_value;
    if (!is_target(rule->target, what == LIE))
        return fail(what == LIE ? "no such field" : "no such message", rule->target);
    n_rules++;
    return 0;
}

static int set_option(const char *option, const char *argument) {
    char *end = NULL;
    const long long n = strtoll(argument, &end, 10);
    struct rule *last = n_rules > 0 ? &rules[n_rules - 1] : NULL;
    if (*end != '\0' || end == argument) return fail("expected a number", argument);
    if (strcmp(option, "--seed") == 0)
        memory.state = (uint64_t)n;
    else if (last != NULL && strcmp(option, "--from-step") == 0)
        last->from_step = n;
    else if (last != NULL && strcmp(option, "--times") == 0)
        last->left = (int)n;
    else if (last != NULL && strcmp(option, "--again") == 0)
        last->is_again = n != 0;
    else
        return fail("no such option, or no rule before it", option);
    return 0;
}

int lies_parse(int argc, char **argv) {
    int i = 0;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        int what = 0;
        while (what < N_ACTS && strcmp(argv[i], act_names[what]) != 0)
            what++;
        const int err = what < N_ACTS ? add_rule((act)what, argv[i + 1])
                                      : set_option(argv[i], argv[i + 1]);
        if (err != 0) return err;
    }
    return i;
}

/* ---- applying ---- */

/* Both what a worker and what a coordinator sends tells the step. */
static void follow_step(const struct strait_msg *msg) {
    const strait_stage_command *command = (const strait_stage_command *)(void *)parcel.object;
    is_sent_again = 0;
    if (msg->type == STRAIT_MSG_CROSSING && (msg->flags & STRAIT_CROSSING_IS_VALID) == 0) {
        step = msg->step;
        is_sent_again = step < newest_step;
        newest_step = step > newest_step ? step : newest_step;
    }
    if (msg->type == STRAIT_MSG_COMMAND && command->kind == STRAIT_COMMAND_GRADIENTS)
        step = command->gradients.step;
}

/* The list of tensors at the beginning of a snapshot stays: without it the bytes are refused. */
static void clear_rest(struct strait_msg *msg) {
    strait_snapshot_sizes sizes = {0};
    unsigned char *from = msg->body + (parcel.rest.data - msg->body);
    (void)strait_snapshot_header_measure(from, parcel.rest.bytes, SIZE_MAX, &sizes);
    if (sizes.list_bytes < parcel.rest.bytes)
        memset(from + sizes.list_bytes, 0, parcel.rest.bytes - sizes.list_bytes);
}

static void flip_bit(struct strait_msg *msg) {
    unsigned char *from = msg->body + (parcel.rest.data - msg->body);
    if (parcel.rest.bytes > 0) from[parcel.rest.bytes - 1] ^= 1;
}

static void fill_rest(struct strait_msg *msg) {
    memset(msg->body + (parcel.rest.data - msg->body), 0xff, parcel.rest.bytes);
}

static void report(struct rule *rule) {
    if (rule->n_told++ >= REPORTED) return;
    fprintf(stderr, "liar: step %lld: %s %s%s%s\n", (long long)step, act_names[rule->act],
            rule->target, rule->value[0] != '\0' ? "=" : "", rule->value);
}

/* Whether the rule concerns the message, which is unpacked in `parcel`; changes it where it does.
 */
static int apply(struct rule *rule, struct strait_msg *msg, struct verdict *out) {
    void *at = NULL;
    const strait_field *field = NULL;
    if (rule->left <= 0 || step < rule->from_step || (rule->is_again && !is_sent_again)) return 0;
    if (rule->act == LIE)
        field = parcel_find(&parcel, msg, rule->target, &at);
    else if (!parcel_is(&parcel, rule->target))
        return 0;
    switch (rule->act) {
    case LIE:
        if (field == NULL) return 0;
        value_set(field, at, rule->value, &memory);
        break;
    case DROP: out->is_dropped = 1; break;
    case DUPLICATE: out->is_doubled = 1; break;
    case DELAY: out->delay_ms += (int)strtol(rule->value, NULL, 10); break;
    case ZERO: clear_rest(msg); break;
    case FLIP: flip_bit(msg); break;
    case FILL: fill_rest(msg); break;
    default: break; // SHORT and LONG change what is packed
    }
    report(rule);
    return 1;
}

/* Applies all rules to `copy`, a copy of the message with one more byte behind it, and packs it
 * again. Nothing is changed when no rule applies. */
static void apply_all(struct strait_msg *copy, struct verdict *out) {
    if (!parcel_unpack(copy, &parcel)) return;
    follow_step(copy);
    for (int i = 0; i < n_rules; i++) {
        if (!apply(&rules[i], copy, out)) continue;
        out->rules |= UINT64_C(1) << i;
        rules[i].left--;
        if (rules[i].act == LONG) parcel.rest.bytes++;
    }
    if (out->rules == 0 || parcel_pack(&parcel, copy, &out->changed) != STRAIT_OK) return;
    for (int i = 0; i < n_rules; i++)
        if ((out->rules >> i & 1) != 0 && rules[i].act == SHORT && out->changed->size > 0)
            out->changed->size--;
}

void lies_apply(struct strait_msg *msg, struct verdict *out) {
    struct strait_msg *copy = NULL;
    *out = (struct verdict){0};
    if (n_rules == 0 || message_like(msg, msg->size + 1, &copy) != STRAIT_OK) return;
    memcpy(copy->body, msg->body, msg->size);
    copy->body[msg->size] = 0;
    copy->size = msg->size;
    pthread_mutex_lock(&mutex);
    apply_all(copy, out);
    pthread_mutex_unlock(&mutex);
    strait_msg_close(&copy);
}

void lies_undo(const struct verdict *verdict) {
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n_rules; i++)
        rules[i].left += (int)(verdict->rules >> i & 1);
    pthread_mutex_unlock(&mutex);
}
