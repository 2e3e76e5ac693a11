/* messages.c - how messages of neighbours reach the parts of a runner. */
#include "stage/runner.h"

enum {
    POLL_MS = 50
};

/* A boundary is identified by the sending peer: its number in the message is checked later. */
strait_err strait_runner_route(struct strait_runner *runner, struct strait_msg **msg) {
    const int side = runner->side;
    const int is_crossing = (*msg)->type == STRAIT_MSG_CROSSING;
    struct strait_boundary *boundary = NULL;
    if ((*msg)->type == STRAIT_MSG_REDUCE && runner->reduction != NULL)
        return strait_reduction_deliver(runner->reduction, msg);
    if ((*msg)->type == STRAIT_MSG_OUTER && runner->outer != NULL)
        return strait_outer_deliver(runner->outer, msg);
    if (runner->receiver != NULL && strait_boundary_replica(runner->receiver, (*msg)->peer) >= 0)
        boundary = runner->receiver;
    else if (runner->sender != NULL && strait_boundary_replica(runner->sender, (*msg)->peer) >= 0)
        boundary = runner->sender;
    runner->side = boundary == NULL ? 0 : (boundary == runner->sender ? 1 : -1);
    if ((*msg)->type == STRAIT_MSG_PROGRESS && boundary != NULL) {
        strait_link_progress_hear(&runner->progress, runner->side, *msg);
        runner->side = side;
        return STRAIT_OK;
    }
    STRAIT_TRY(is_crossing && boundary != NULL ? strait_boundary_deliver(boundary, msg)
                                               : runner->on_message(runner->user, msg));
    runner->side = side;
    return STRAIT_OK;
}

strait_err strait_runner_poll(const struct strait_runner *runner) {
    return runner->on_poll != NULL ? runner->on_poll(runner->user) : STRAIT_OK;
}

strait_err strait_runner_poll_waiting(void *user) {
    struct strait_runner *runner = user;
    runner->is_waiting = 1;
    return strait_runner_poll(runner);
}

static void add_peers(const struct strait_boundary *boundary, int side, strait_link_peers *out) {
    for (int i = 0; boundary != NULL && i < STRAIT_RUN_REPLICAS; i++) {
        const int peer = strait_boundary_peer(boundary, i);
        if (peer >= 0) out->items[side][out->n[side]++] = peer;
    }
}

static strait_link_peers neighbours(const struct strait_runner *runner) {
    strait_link_peers peers = {{0}, {{0}}};
    add_peers(runner->receiver, 0, &peers);
    add_peers(runner->sender, 1, &peers);
    return peers;
}

strait_err strait_runner_receive(struct strait_runner *runner, int timeout_ms,
                                 struct strait_msg **out) {
    const int slice_ms = timeout_ms < POLL_MS ? timeout_ms : POLL_MS;
    const strait_link_peers peers = neighbours(runner);
    runner->is_waiting = timeout_ms > 0;
    STRAIT_TRY(strait_runner_poll(runner));
    for (;;) {
        const strait_err err = strait_mesh_receive(runner->mesh, slice_ms, out);
        if (err == STRAIT_OK && (*out)->type != STRAIT_MSG_PROGRESS)
            strait_link_progress_note(&runner->progress);
        if (err != STRAIT_ETIMEDOUT || timeout_ms == 0) return err;
        STRAIT_TRY(strait_runner_poll(runner));
        if (strait_link_progress_check(&runner->progress, runner->mesh, &peers,
                                       runner->deadline_ms) >= timeout_ms)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "nothing moved for %d ms", timeout_ms);
    }
}

strait_err strait_runner_drain(struct strait_runner *runner, int timeout_ms) {
    for (;; timeout_ms = 0) {
        struct strait_msg *msg = NULL;
        const strait_err err = strait_runner_receive(runner, timeout_ms, &msg);
        if (err == STRAIT_ETIMEDOUT) return timeout_ms == 0 ? STRAIT_OK : err;
        STRAIT_TRY(err);
        const strait_err routed = strait_runner_route(runner, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(routed);
    }
}
