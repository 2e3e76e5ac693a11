/* log_lines.c - limits the lines of events.log that others decide on: refused strangers, and
 * workers that come and go. The log has a maximum size: a worker that could write any number of
 * lines would rotate older entries out. */
#include "base/clock.h"
#include "swarm/host/access/admission.h"
#include "swarm/host/state.h"

#include <stdarg.h>
#include <stdio.h>

#define RECONNECT_WINDOW_NS INT64_C(60000000000) // in which reconnections are counted

enum {
    SUMMARY_MS = 60000,
    RECONNECTS_MANY = 10 // within the window: more than a bad link explains
};

/* In all there are lines for every worker to come and to go at once. */
static const struct host_bucket stranger_lines = {20.0, 0.1}, key_lines = {20.0, 0.1},
                                worker_lines = {2.0 * STRAIT_SWARM_WORKERS, 1.0};

static int take(const struct host_bucket *bucket, struct host_allowance *allowance) {
    strait_host_refill(bucket, allowance, strait_clock_ns());
    if (allowance->left < 1.0) return 0;
    allowance->left -= 1.0;
    return 1;
}

void strait_host_note_stranger(struct host *h, const char *format, ...) {
    char text[512];
    va_list args;
    if (!take(&stranger_lines, &h->admission.log)) {
        h->admission.n_unlogged++;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    strait_host_note(h, "%s", text);
}

/* ---- workers that come and go ---- */

/* A new key takes the place of the one that was logged least recently. */
static struct host_log_key *entry_of(struct host_admission *a, const strait_fingerprint *key) {
    int oldest = 0;
    for (int i = 0; i < a->n_log_keys; i++) {
        if (strait_fingerprint_equal(&a->log_keys[i].key, key)) return &a->log_keys[i];
        if (a->log_keys[i].allowance.refilled_ns < a->log_keys[oldest].allowance.refilled_ns)
            oldest = i;
    }
    const int at = a->n_log_keys < STRAIT_HOST_LOG_KEYS ? a->n_log_keys++ : oldest;
    a->log_keys[at] = (struct host_log_key){.key = *key};
    return &a->log_keys[at];
}

int strait_host_may_log(struct host *h, const strait_fingerprint *key, const char *name) {
    struct host_log_key *entry = entry_of(&h->admission, key);
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    /* What one key has used up is not taken from the others. */
    if (take(&key_lines, &entry->allowance) && take(&worker_lines, &h->admission.all_lines))
        return 1;
    entry->n_left_out++;
    h->admission.n_left_out++;
    return 0;
}

/* Two workers with one key replace each other's link for ever; only the operator can help. */
void strait_host_count_reconnect(struct host *h, int worker, const char *name) {
    const int64_t now = strait_clock_ns();
    if (now - h->links.reconnects_since_ns[worker] > RECONNECT_WINDOW_NS) {
        h->links.reconnects_since_ns[worker] = now;
        h->links.n_reconnects[worker] = 0;
    }
    if (++h->links.n_reconnects[worker] == RECONNECTS_MANY)
        strait_host_note(h,
                         "worker %s keeps reconnecting while its previous link is still up: if two "
                         "workers share one key, start one of them with another folder of keys",
                         name);
}

/* ---- what was left out ---- */

/* Names the key with the most: the operator may want to ban it. */
static void sum_up_workers(struct host *h) {
    struct host_admission *a = &h->admission;
    const struct host_log_key *most = &a->log_keys[0];
    char key[STRAIT_FINGERPRINT_TEXT];
    if (a->n_left_out == 0) return;
    for (int i = 1; i < a->n_log_keys; i++)
        if (a->log_keys[i].n_left_out > most->n_left_out) most = &a->log_keys[i];
    strait_fingerprint_text(&most->key, key);
    strait_host_note(
        h,
        "suppressed %lld more lines about workers that join and leave, %lld of them about "
        "%s (%.8s)",
        (long long)a->n_left_out, (long long)most->n_left_out, most->name, key);
    for (int i = 0; i < a->n_log_keys; i++)
        a->log_keys[i].n_left_out = 0;
    a->n_left_out = 0;
}

void strait_host_sum_up(struct host *h, int64_t now_ns) {
    if (now_ns - h->admission.summary_ns < SUMMARY_MS * INT64_C(1000000)) return;
    h->admission.summary_ns = now_ns;
    if (h->admission.n_unlogged > 0)
        strait_host_note(h, "%lld more connections or requests to join were refused",
                         (long long)h->admission.n_unlogged);
    h->admission.n_unlogged = 0;
    sum_up_workers(h);
}
