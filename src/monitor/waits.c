#include "monitor/waits.h"

#include <string.h>

enum {
    SPANS_MAX = 1024 // of one stage or link; later ones are not looked at
};

/* A forward pass needs the previous stage, a backward pass the next one. The first stage, which
 * has its inputs, waits for a gradient that frees a slot; the last has both at once. */
static int waits_for_next(const strait_trainer_span *span, int n_stages) {
    if (span->stage == 0) return 1;
    return span->stage + 1 < n_stages && span->kind != STRAIT_SPAN_FORWARD;
}

static void find_shares(const strait_trainer_span *spans, int n_spans, int n_stages,
                        strait_waits *out) {
    double ends_s[STRAIT_RUN_STAGES] = {0};
    for (int i = 0; i < n_spans; i++) {
        const strait_trainer_span *span = &spans[i];
        if (span->kind >= STRAIT_SPAN_UPDATE || span->stage < 0 || span->stage >= n_stages)
            continue; // updates wait for all stages
        const double gap = span->start_s - ends_s[span->stage];
        double *waited = waits_for_next(span, n_stages) ? out->next : out->prev;
        if (gap > 0.0) waited[span->stage] += gap;
        ends_s[span->stage] = span->end_s;
    }
    for (int i = 0; i < n_stages; i++) {
        const double sum = out->prev[i] + out->next[i];
        if (sum <= 0.0) continue;
        out->prev[i] /= sum;
        out->next[i] /= sum;
    }
}

/* Message k is in the queue from when it is computed until its first bit is sent. */
static int longest_queue(const double *computed, const double *sent, int n) {
    int most = 0, first = 0; // that is not sent yet
    for (int k = 0; k < n; k++) {
        while (first < k && sent[first] <= computed[k])
            first++;
        const int n_queued = k - first + (sent[k] > computed[k]);
        if (n_queued > most) most = n_queued;
    }
    return most;
}

static int is_computed(const strait_trainer_span *span, int is_forward) {
    if (is_forward) return span->kind == STRAIT_SPAN_FORWARD;
    return span->kind == STRAIT_SPAN_BACKWARD || span->kind == STRAIT_SPAN_INPUT;
}

static int queue_of(const strait_trainer_span *spans, int n_spans, int stage, int is_forward) {
    double computed[SPANS_MAX], sent[SPANS_MAX];
    int n_computed = 0, n_sent = 0;
    for (int i = 0; i < n_spans; i++) {
        const strait_trainer_span *span = &spans[i];
        if (span->stage != stage) continue;
        if (is_computed(span, is_forward) && n_computed < SPANS_MAX)
            computed[n_computed++] = span->end_s;
        if (span->kind == (is_forward ? STRAIT_SPAN_ACTIVATION : STRAIT_SPAN_GRADIENT) &&
            n_sent < SPANS_MAX)
            sent[n_sent++] = span->start_s;
    }
    return longest_queue(computed, sent, n_sent < n_computed ? n_sent : n_computed);
}

void strait_waits_find(const strait_trainer_span *spans, int n_spans, int n_stages,
                       strait_waits *out) {
    memset(out, 0, sizeof *out);
    find_shares(spans, n_spans, n_stages, out);
    for (int i = 0; i + 1 < n_stages; i++) {
        out->forward_queue[i] = queue_of(spans, n_spans, i, 1);
        out->backward_queue[i] = queue_of(spans, n_spans, i + 1, 0);
    }
}
