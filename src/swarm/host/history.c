#include "swarm/host/history.h"

#include "base/alloc.h"
#include "swarm/host/replicas.h"

#include <math.h>
#include <string.h>

static struct host_step *place_of(struct host *h, int64_t step) {
    return &h->history.steps[step % STRAIT_HOST_HISTORY];
}

const struct host_step *strait_host_find_step(const struct host *h, int64_t step) {
    const struct host_step *found = &h->history.steps[step % STRAIT_HOST_HISTORY];
    return step >= 0 && found->step == step + 1 ? found : NULL;
}

static const strait_stage_reply *reply_of(const struct host *h, int stage) {
    return &h->work.channel.replies.items[strait_run_plan_member(&h->executor->plan, stage, 0)];
}

static double sum_squares(const strait_stage_reply *reply) {
    double sum = 0.0;
    for (int i = 0; i < reply->gradients.squares.n; i++)
        sum += (double)reply->gradients.squares.data[i];
    return sum;
}

static void kernels_of(const struct host *h, int stage, char out[STRAIT_REPLAY_KERNELS]) {
    strait_replay_kernels(strait_host_owner(h, stage)->report.device, out);
}

/* A step that was skipped applies no update; the trainer decides by the same values. */
void strait_host_note_step(struct host *h, int64_t step, const strait_executor_report *report) {
    struct host_step *s = place_of(h, step);
    *s = (struct host_step){.step = step + 1,
                            .is_skipped = !isfinite(report->loss_sum) || !isfinite(report->norm),
                            .factor = NAN,
                            .loss_sum = report->loss_sum};
    for (int i = 0; i < h->coordinator.config.n_stages; i++) {
        s->squares[i] = sum_squares(reply_of(h, i));
        kernels_of(h, i, s->kernels[i]);
    }
}

void strait_host_note_factor(struct host *h, int64_t step, float factor) {
    if (strait_host_find_step(h, step) != NULL) place_of(h, step)->factor = factor;
}

const struct host_basis *strait_host_find_basis(const struct host *h, uint32_t version) {
    for (int i = 0; i < STRAIT_HOST_BASES; i++)
        if (version != 0 && h->history.bases[i].version == version) return &h->history.bases[i];
    return NULL;
}

/* The steps before the basis that is forgotten can no longer be computed again. */
static void forget_basis(struct host *h, const struct host_basis *basis) {
    struct strait_coordinator *c = &h->coordinator;
    if (basis->version != 0 && c->history_first >= 0 && c->history_first < basis->version)
        c->history_first = basis->version;
}

strait_err strait_host_note_basis(struct host *h, uint32_t version, const strait_floats *basis) {
    const struct host_basis *known = strait_host_find_basis(h, version);
    const int at = known != NULL ? (int)(known - h->history.bases)
                                 : h->history.n_bases++ % STRAIT_HOST_BASES;
    struct host_basis *slot = &h->history.bases[at];
    if (known == NULL) forget_basis(h, slot);
    if (slot->n != basis->n) {
        strait_alloc_free(slot->values);
        *slot = (struct host_basis){0};
        STRAIT_TRY(
            strait_alloc((size_t)basis->n, sizeof *slot->values, "basis", (void **)&slot->values));
    }
    slot->version = version;
    slot->n = basis->n;
    memmove(slot->values, basis->data, (size_t)basis->n * sizeof *slot->values);
    return STRAIT_OK;
}

/* ---- comparing ---- */

static int is_near(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

/* On CPUs with the same kernels the bits are the same. Other devices round differently, and the
 * difference grows with every step, so later ones are not compared (replay_check.h). */
static int is_same(const struct host *h, const struct host_step *first, int stage, int64_t start) {
    const int is_last = stage == h->coordinator.config.n_stages - 1;
    const double squares = sum_squares(reply_of(h, stage));
    const double loss_sum = reply_of(h, stage)->gradients.loss_sum;
    char kernels[STRAIT_REPLAY_KERNELS];
    kernels_of(h, stage, kernels);
    const int is_exact = kernels[0] != '\0' && strcmp(kernels, first->kernels[stage]) == 0;
    if (first->is_skipped) return 1; // values that are not finite are not compared
    if (is_exact)
        return squares == first->squares[stage] && (!is_last || loss_sum == first->loss_sum);
    if (first->step - 1 - start >= STRAIT_REPLAY_NEAR) return 1;
    return is_near(squares, first->squares[stage], 2.0 * STRAIT_REPLAY_NORM_TOLERANCE) &&
           (!is_last || is_near(loss_sum, first->loss_sum, STRAIT_REPLAY_LOSS_TOLERANCE));
}

int strait_host_find_difference(const struct host *h, int64_t step, int64_t start) {
    const struct host_step *first = strait_host_find_step(h, step);
    for (int i = 0; first != NULL && i < h->coordinator.config.n_stages; i++)
        if (h->coordinator.replay.is_late[i] && !is_same(h, first, i, start)) return i;
    return -1;
}

void strait_host_history_fini(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_BASES; i++)
        strait_alloc_free(h->history.bases[i].values);
    h->history = (struct host_history){0};
}
