/* measure.c - lets the workers measure their stages and the links between them. */
#include "base/clock.h"
#include "config/run_auto.h"
#include "swarm/host/codec/codec.h"
#include "swarm/host/replicas.h"
#include "train/outlook/choose.h"
#include "train/pipeline.h"

enum {
    PROBE_MS = 4000, // half of it for connections to speed up
    ATTEMPTS = 5     // workers that come and go, or do not answer, interrupt a measurement
};

/* ---- before the run ---- */

static strait_err measure_once(struct host *h) {
    struct host_probes *p = &h->probes;
    const strait_run_plan *plan = &h->executor->plan;
    strait_step_times times[STRAIT_RUN_STAGES];
    double batch_s[STRAIT_RUN_STAGES];
    STRAIT_TRY(strait_pipeline_time_passes(h->pipeline, times, p->measured.delay_s));
    strait_host_correct_speeds(h);
    for (int i = 0; i < plan->n_stages; i++)
        batch_s[i] = times[i].forward + times[i].input + times[i].weights;
    STRAIT_TRY(strait_measured_set_speeds(plan, batch_s, &p->measured));
    STRAIT_TRY(strait_pipeline_probe(h->pipeline, PROBE_MS, &p->measured, &p->differ));
    p->checked_ns = strait_clock_ns();
    return STRAIT_OK;
}

/* "link 0-1: 1980kbit forward, 2010kbit backward, 25 ms (w1 and w2)" */
static void note_link(struct host *h, int i) {
    const strait_measured *m = &h->probes.measured;
    const char *differ = (h->probes.differ >> i & 1) != 0
                             ? "; the two contradict each other, and the larger rate counts"
                             : "";
    char forward[32], backward[32];
    strait_run_show_rate(m->forward_bps[i], forward, sizeof forward);
    strait_run_show_rate(m->backward_bps[i], backward, sizeof backward);
    strait_host_note(h, "link %d-%d: %s forward, %s backward, %.1f ms (%s and %s%s)", i, i + 1,
                     forward, backward, 1e3 * m->delay_s[i], strait_host_owner(h, i)->report.name,
                     strait_host_owner(h, i + 1)->report.name, differ);
}

strait_err strait_host_measure(struct host *h) {
    strait_err err = STRAIT_EAGAIN;
    for (int i = 0; i < ATTEMPTS && err == STRAIT_EAGAIN; i++) {
        STRAIT_TRY(strait_host_replay_to(h->executor, 0));
        if (i == 0)
            strait_host_note(h, "codec auto: measuring all links at the same time, for %d s",
                             PROBE_MS / 1000);
        err = measure_once(h);
    }
    if (err != STRAIT_EAGAIN) STRAIT_TRY(err);
    h->probes.is_known = err == STRAIT_OK;
    for (int i = 0; h->probes.is_known && i + 1 < h->executor->plan.n_stages; i++)
        note_link(h, i);
    return STRAIT_OK;
}

/* ---- in a running session ---- */

/* Only a choice that a measurement was made for is compared with another one, until all of its
 * links were warned of. A run that continues is looked at as soon as its stages have been timed.
 * Steps that were replayed may have ended the generation. */
static int is_due(const struct host *h) {
    const struct host_probes *p = &h->probes;
    const uint64_t all = (UINT64_C(1) << (h->executor->plan.n_stages - 1)) - 1;
    const double since_s = (double)(strait_clock_ns() - p->checked_ns) * 1e-9;
    if (h->spec->probe_s <= 0.0 || h->run.link.codec.chosen_for[0] == '\0' ||
        strait_run_has_limits(&h->run) || h->executor->plan.staleness > 0 || h->pace.n_steps < 2 ||
        p->told == all || h->coordinator.phase != STRAIT_PHASE_READY)
        return 0;
    return p->checked_ns == 0 || since_s >= h->spec->probe_s;
}

struct checking {
    const struct host *host;
    strait_measured measured;
    uint64_t told;
    char text[STRAIT_CHOICE_TEXT];
};

/* Beside the event loop. A link that cannot be judged is no reason to end a run. */
static strait_err compare(void *arg) {
    struct checking *c = arg;
    const strait_choose_params params = {.is_swarm = 1, .measured = &c->measured};
    if (strait_choose_check(&c->host->run, &params, &c->told, c->text) != STRAIT_OK)
        c->text[0] = '\0';
    return STRAIT_OK;
}

static strait_err warn(struct host *h) {
    struct checking checking = {.host = h, .measured = h->probes.measured, .told = h->probes.told};
    do {
        STRAIT_TRY(strait_host_run_async(h, compare, &checking, strait_host_keep_alive));
        if (checking.text[0] != '\0') strait_host_note(h, "%s", checking.text);
    } while (checking.text[0] != '\0');
    h->probes.told = checking.told;
    return STRAIT_OK;
}

strait_err strait_host_check_links(struct host *h) {
    struct host_probes *p = &h->probes;
    double batch_s[STRAIT_RUN_STAGES];
    if (!is_due(h)) return STRAIT_OK;
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        batch_s[i] = h->pace.batch_s[h->coordinator.owner[i]];
    STRAIT_TRY(strait_measured_set_speeds(&h->executor->plan, batch_s, &p->measured));
    STRAIT_TRY(strait_pipeline_probe(h->pipeline, PROBE_MS, &p->measured, &p->differ));
    p->checked_ns = strait_clock_ns();
    return warn(h);
}
