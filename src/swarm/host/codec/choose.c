/* choose.c - the codec of a run, from what its workers have measured. */
#include "train/outlook/choose.h"

#include "base/alloc.h"
#include "config/run_auto.h"
#include "swarm/host/codec/codec.h"
#include "swarm/host/replicas.h"

#include <string.h>

/* Choosing simulates many steps, beside the event loop. */
struct choosing {
    strait_run run;
    strait_measured measured;
    strait_choice choice;
};

static strait_err choose(void *arg) {
    struct choosing *c = arg;
    const strait_choose_params params = {.is_swarm = 1, .measured = &c->measured};
    return strait_choose_codec(&c->run, &params, &c->choice);
}

/* One note for each line. */
static void note_choice(struct host *h, const strait_choice *choice) {
    char text[STRAIT_CHOICE_TEXT];
    char *rest = NULL;
    strait_choice_describe(choice, text);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        strait_host_note(h, "%s", line);
}

/* The run with exact boundaries: what is measured does not depend on a codec. */
static strait_err measure_exact(struct host *h, strait_run *exact, strait_run_plan *plan,
                                struct strait_loader *loader) {
    struct strait_executor *executor = NULL;
    int n = 0;
    STRAIT_TRY(strait_run_apply_rung(exact, strait_codec_ladder(&n), ""));
    exact->stages.split = h->run.stages.split;
    STRAIT_TRY(strait_run_plan_init(exact, strait_loader_vocab(loader), plan));
    STRAIT_TRY(strait_loader_configure(loader, plan));
    h->probes.is_measuring = 1;
    const strait_err err = strait_executor_open((strait_executor_choice){&strait_swarm_executor, h},
                                                exact, plan, loader, &executor);
    strait_executor_close(&executor);
    h->probes.is_measuring = 0;
    STRAIT_TRY(err);
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_ANEW});
    if (!h->probes.is_known) memset(&h->probes.measured, 0, sizeof h->probes.measured);
    return STRAIT_OK;
}

static strait_err measure(struct host *h, struct strait_loader *loader) {
    strait_run *exact = NULL;
    strait_run_plan plan;
    STRAIT_TRY(strait_alloc(1, sizeof *exact, "run", (void **)&exact));
    *exact = h->run;
    const strait_err err = measure_exact(h, exact, &plan, loader);
    strait_alloc_free(exact);
    return err;
}

/* Whether the run file gives the split. Changes of a run keep what is given, and derive the rest.
 */
static unsigned char *split_is_given(strait_run *run) {
    const strait_options *table = strait_run_options();
    return &run->is_given[strait_options_find(table, "stages.split") - table->rows];
}

static strait_err choose_measured(struct host *h) {
    struct choosing *c = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *c, "codecs to choose from", (void **)&c));
    c->run = h->run;
    c->measured = h->probes.measured;
    const unsigned char was_given = *split_is_given(&c->run);
    *split_is_given(&c->run) = 1; // the split of the workers that were measured
    const strait_err err = strait_host_run_async(h, choose, c, strait_host_keep_alive);
    *split_is_given(&c->run) = was_given;
    if (err == STRAIT_OK) {
        h->run = c->run;
        note_choice(h, &c->choice);
    }
    strait_alloc_free(c);
    return err;
}

/* What was derived from the plan without a codec is derived again. */
static strait_err plan_again(struct host *h, struct strait_loader *loader, strait_run_plan *plan) {
    STRAIT_TRY(strait_run_plan_init(&h->run, strait_loader_vocab(loader), plan));
    STRAIT_TRY(strait_run_plan_check_swarm(plan));
    STRAIT_TRY(strait_host_check_replicas(h, plan));
    strait_host_plan_replicas(h, plan);
    STRAIT_TRY(strait_loader_configure(loader, plan));
    return strait_host_describe_run(h, plan, strait_loader_valid_windows(loader));
}

/* Another host of this folder may have chosen while this one stood by. */
static strait_err find_codec(struct host *h, struct strait_loader *loader, strait_run_plan *plan) {
    const strait_option_ints split = h->run.stages.split; // chosen, not given: changes reset it
    STRAIT_TRY(strait_choose_recorded(&h->run, h->spec->folder));
    if (strait_run_is_auto(&h->run)) {
        h->run.stages.split = split;
        STRAIT_TRY(measure(h, loader));
        STRAIT_TRY(choose_measured(h));
    }
    h->run.stages.split = split;
    return plan_again(h, loader, plan);
}

strait_err strait_host_choose_codec(struct host *h, strait_run_plan *plan) {
    struct strait_loader *loader = NULL;
    if (!strait_run_is_auto(&h->run)) return STRAIT_OK;
    STRAIT_TRY(strait_loader_open(&h->run, &loader));
    const strait_err err = find_codec(h, loader, plan);
    strait_loader_close(&loader);
    return err;
}
