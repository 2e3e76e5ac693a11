/* service_access.c - what others may know of a service, and the replicas of its stage. */
#include "stage/service_state.h"

/* ---- replicas ---- */

void strait_service_add_link(struct strait_service *s, strait_stage_side side, int replica,
                             int peer) {
    strait_stage_links_set(&s->links, side, replica, peer);
    if (s->runner != NULL) strait_runner_connect(s->runner, &s->links);
}

strait_err strait_service_set_replicas(struct strait_service *s,
                                       const strait_stage_replicas *replicas) {
    STRAIT_TRY(strait_stage_replicas_apply(replicas, s->stage, &s->plan));
    s->replica = replicas->replica;
    return s->runner != NULL ? strait_runner_set_replicas(s->runner, &s->plan, s->replica)
                             : STRAIT_OK;
}

/* ---- access ---- */

const strait_stage_links *strait_service_links(const struct strait_service *s) {
    return &s->links;
}

int strait_service_stage(const struct strait_service *s) {
    return s->stage;
}

const strait_run *strait_service_get_run(const struct strait_service *s) {
    return &s->run;
}

const strait_run_plan *strait_service_plan(const struct strait_service *s) {
    return &s->plan;
}

struct strait_loader *strait_service_loader(struct strait_service *s) {
    return s->loader;
}

struct strait_runner *strait_service_runner(struct strait_service *s) {
    return s->runner;
}

strait_float_memory strait_service_floats(struct strait_service *s) {
    return (strait_float_memory){s->basis, s->n_basis};
}
