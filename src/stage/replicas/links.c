#include "stage/replicas/links.h"

#include <stdio.h>

void strait_stage_links_init(strait_stage_links *links, struct strait_mesh *mesh) {
    *links = (strait_stage_links){.mesh = mesh};
    for (int side = 0; side < STRAIT_SIDES; side++)
        for (int i = 0; i < STRAIT_RUN_REPLICAS; i++)
            links->peers[side][i] = -1;
}

void strait_stage_links_set(strait_stage_links *links, strait_stage_side side, int replica,
                            int peer) {
    if (peer < 0) return;
    links->peers[side][replica] = peer;
    if (replica >= links->n[side]) links->n[side] = replica + 1;
}

strait_err strait_stage_links_add(strait_stage_links *links, const strait_run_plan *plan, int stage,
                                  strait_stage_side side, int replica, strait_stage_peer peer) {
    const int theirs = stage + (int)side - STRAIT_SIDE_SAME;
    const int is_dialled = peer.address != NULL && peer.address[0] != '\0';
    strait_mesh_peer added = {
        .key = *peer.key, .address = is_dialled ? peer.address : NULL, .emulate = &plan->emulate};
    int number = -1;
    if (theirs < 0 || theirs >= plan->n_stages || replica < 0 || replica >= plan->replicas[theirs])
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: there is no replica %d of stage %d", stage,
                           replica, theirs);
    strait_run_plan_member_name(plan, strait_run_plan_member(plan, theirs, replica), added.name,
                                sizeof added.name);
    STRAIT_TRY(strait_mesh_add(links->mesh, &added, &number));
    strait_stage_links_set(links, side, replica, number);
    return STRAIT_OK;
}

void strait_stage_links_name(const strait_stage_links *links, const strait_run_plan *plan,
                             int stage, int peer, char out[STRAIT_NAME_MAX]) {
    strait_stage_side side;
    int replica = 0;
    (void)snprintf(out, STRAIT_NAME_MAX, "an unknown peer");
    if (!strait_stage_links_find(links, peer, &side, &replica)) return;
    const int member = strait_run_plan_member(plan, stage + (int)side - STRAIT_SIDE_SAME, replica);
    strait_run_plan_member_name(plan, member, out, STRAIT_NAME_MAX);
}

int strait_stage_links_find(const strait_stage_links *links, int peer, strait_stage_side *side,
                            int *replica) {
    for (int k = 0; peer >= 0 && k < STRAIT_SIDES; k++)
        for (int i = 0; i < links->n[k]; i++)
            if (links->peers[k][i] == peer) {
                *side = (strait_stage_side)k;
                *replica = i;
                return 1;
            }
    return 0;
}

int strait_stage_links_stage(const strait_stage_links *links, int stage, int peer) {
    strait_stage_side side;
    int replica = 0;
    if (!strait_stage_links_find(links, peer, &side, &replica)) return -1;
    return stage + (int)side - STRAIT_SIDE_SAME;
}

int strait_stage_links_count(const strait_stage_links *links, strait_stage_side side) {
    int n = 0;
    for (int i = 0; i < links->n[side]; i++)
        n += links->peers[side][i] >= 0;
    return n;
}

strait_err strait_stage_links_wait(const strait_stage_links *links, int timeout_ms) {
    for (int side = 0; side < STRAIT_SIDES; side++)
        for (int i = 0; i < links->n[side]; i++)
            if (links->peers[side][i] >= 0)
                STRAIT_TRY(strait_mesh_wait_up(links->mesh, links->peers[side][i], timeout_ms));
    return STRAIT_OK;
}

uint64_t strait_stage_links_received(strait_stage_links *links, strait_stage_side side) {
    uint64_t all = 0;
    for (int i = 0; i < links->n[side]; i++) {
        strait_link_stats stats = {0};
        if (links->peers[side][i] < 0 ||
            strait_mesh_stats(links->mesh, links->peers[side][i], &stats) != STRAIT_OK)
            continue;
        all += stats.received_bytes;
    }
    const uint64_t since = all - links->seen[side];
    links->seen[side] = all;
    return since;
}

/* The order of groups follows from the stage with most replicas, wherever it is. */
strait_err strait_stage_replicas_apply(const strait_stage_replicas *replicas, int stage,
                                       strait_run_plan *plan) {
    const int n_own = replicas->n[STRAIT_SIDE_SAME];
    int all[STRAIT_RUN_STAGES];
    for (int i = 0; i < plan->n_stages; i++)
        all[i] = 1;
    for (int side = 0; side < STRAIT_SIDES; side++) {
        const int theirs = stage + side - STRAIT_SIDE_SAME;
        if (theirs < 0 || theirs >= plan->n_stages) continue;
        all[theirs] = replicas->n[side];
        if (all[theirs] < 1 || all[theirs] > replicas->most ||
            replicas->most > plan->replicas_limit)
            return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: %d replicas of stage %d, expected 1 to %d",
                               stage, all[theirs], theirs, plan->replicas_limit);
    }
    if (replicas->replica < 0 || replicas->replica >= n_own)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: there is no replica %d of %d", stage,
                           replicas->replica, n_own);
    strait_run_plan_set_replicas(plan, all);
    plan->groups = strait_groups_make(plan->groups.n_microbatches, plan->groups.n_groups,
                                      replicas->most);
    return STRAIT_OK;
}
