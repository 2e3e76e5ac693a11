/* hostile.c - a worker that misbehaves: hostile MODE INVITE KEYS AFTER
 *
 *   nan     sends non-finite activations and gradients, after AFTER boundary messages
 *   huge    sends values that are larger than those of any model
 *   liar    falsely reports that its neighbours send non-finite values
 *   nonfinite  falsely reports that its own values are non-finite
 *   slow    reports a low speed, and sleeps AFTER ms in each microbatch
 *   poison  sends snapshots with non-finite weights to its neighbours and to the coordinator
 *   misname sends snapshots in which a tensor has another name
 *   greedy  requests from the coordinator what its stage does not have: first more bytes, then
 *           other tensors
 *   rot     corrupts its own snapshots: they become non-finite
 *   mute    sends nothing more to its neighbours, and reports progress to the coordinator
 *
 * It runs the worker of this project; the linker's --wrap replaces some functions by those below.
 * Exits with 6 when the coordinator refuses it. */
#include "codec/codec.h"
#include "swarm/keys.h"
#include "swarm/snapshot/snapshot.h"
#include "swarm/worker/capability.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REFUSED = 6,
    FIRST_NAME = 9 // offset of the first tensor's name in a snapshot
};

static const char *mode = "";
static int n_honest; // boundary messages, or snapshots, before it misbehaves

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                        strait_tensor wire, strait_tensor x);
strait_err __wrap_strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                        strait_tensor wire, strait_tensor x);
strait_err __real_strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                         strait_tensor wire, strait_tensor x);
strait_err __wrap_strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                         strait_tensor wire, strait_tensor x);
strait_err __real_strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                            strait_codec_metrics *out);
strait_err __wrap_strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                            strait_codec_metrics *out);
strait_err __real_strait_snapshot_capture(struct strait_runner *runner, int64_t step,
                                          uint32_t generation, struct strait_snapshot *snapshot);
strait_err __wrap_strait_snapshot_capture(struct strait_runner *runner, int64_t step,
                                          uint32_t generation, struct strait_snapshot *snapshot);

strait_err __real_strait_snapshot_header(struct strait_runner *runner,
                                         struct strait_snapshot *header, size_t *whole_bytes);
strait_err __wrap_strait_snapshot_header(struct strait_runner *runner,
                                         struct strait_snapshot *header, size_t *whole_bytes);
strait_err __real_strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                                    struct strait_msg **out);
strait_err __wrap_strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                                    struct strait_msg **out);
strait_err __real_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out);
strait_err __wrap_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out);
strait_err __real_strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens);
strait_err __wrap_strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens);
strait_err __real_strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                        struct strait_msg **msg);
strait_err __wrap_strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                        struct strait_msg **msg);
strait_err __real_strait_heartbeat_pack(struct strait_msg_pool *pool,
                                        const strait_heartbeat *heartbeat, struct strait_msg **out);
strait_err __wrap_strait_heartbeat_pack(struct strait_msg_pool *pool,
                                        const strait_heartbeat *heartbeat, struct strait_msg **out);
strait_err __real_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __real_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);
strait_err __wrap_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);

/* Counts down `n_honest` in mode `name`; 1 when the worker is to misbehave. */
static int misbehaves(const char *name) {
    return strcmp(mode, name) == 0 && --n_honest < 0;
}

static void corrupt(strait_tensor wire) {
    static const unsigned char nan[4] = {0xff, 0xff, 0xff, 0xff};
    static const unsigned char huge[4] = {0xca, 0xf2, 0x49, 0x71}; // 1e30
    unsigned char *first = wire.data;
    if (misbehaves("nan")) memcpy(first, nan, sizeof nan);
    if (misbehaves("huge")) memcpy(first, huge, sizeof huge);
}

strait_err __wrap_strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                        strait_tensor wire, strait_tensor x) {
    const strait_err err = __real_strait_codec_act_pack(c, at, wire, x);
    corrupt(wire);
    return err;
}

strait_err __wrap_strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                         strait_tensor wire, strait_tensor x) {
    const strait_err err = __real_strait_codec_grad_pack(c, at, wire, x);
    corrupt(wire);
    return err;
}

strait_err __wrap_strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                            strait_codec_metrics *out) {
    const strait_err err = __real_strait_codec_read_metrics(c, s, out);
    if (misbehaves("liar")) out->rejected = 1;
    if (misbehaves("nonfinite")) out->non_finite = 1;
    return err;
}

strait_err __wrap_strait_snapshot_capture(struct strait_runner *runner, int64_t step,
                                          uint32_t generation, struct strait_snapshot *snapshot) {
    const strait_err err = __real_strait_snapshot_capture(runner, step, generation, snapshot);
    if (err == STRAIT_OK && misbehaves("rot"))
        memset(snapshot->data + snapshot->bytes - 4, 0xff, 4);
    return err;
}

/* Appends zeros to the header; from the second time on, also changes the first name. */
strait_err __wrap_strait_snapshot_header(struct strait_runner *runner,
                                         struct strait_snapshot *header, size_t *whole_bytes) {
    struct strait_snapshot more = {0};
    STRAIT_TRY(__real_strait_snapshot_header(runner, header, whole_bytes));
    if (!misbehaves("greedy")) return STRAIT_OK;
    const strait_piece piece = {
        .total = header->bytes + FIRST_NAME, .data = header->data, .bytes = header->bytes};
    STRAIT_TRY(strait_snapshot_add_piece(&more, &piece, piece.total));
    strait_snapshot_fini(header);
    *header = more;
    header->filled = header->bytes;
    if (n_honest < -1) header->data[FIRST_NAME]++;
    return STRAIT_OK;
}

strait_err __wrap_strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                                    struct strait_msg **out) {
    const strait_err err = __real_strait_piece_pack(pool, piece, out);
    const int is_last = piece->offset + piece->bytes == piece->total;
    if (err == STRAIT_OK && is_last && misbehaves("poison"))
        memset((*out)->body + (*out)->size - 4, 0xff, 4);
    if (err == STRAIT_OK && piece->offset == 0 && misbehaves("misname"))
        (*out)->body[(*out)->size - piece->bytes + FIRST_NAME]++;
    return err;
}

strait_err __wrap_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out) {
    const strait_err err = __real_strait_capability_measure(device, ordinal, n_threads, out);
    if (strcmp(mode, "slow") == 0) out->flops = 1e3;
    return err;
}

strait_err __wrap_strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens) {
    const struct timespec pause = {.tv_nsec = n_honest * 1000000L};
    if (strcmp(mode, "slow") == 0) (void)nanosleep(&pause, NULL);
    return __real_strait_stage_forward(stage, slot, tokens);
}

strait_err __wrap_strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                        struct strait_msg **msg) {
    if ((*msg)->type != STRAIT_MSG_CROSSING || !misbehaves("mute"))
        return __real_strait_mesh_send_wait(mesh, peer, timeout_ms, msg);
    strait_msg_close(msg);
    return STRAIT_OK;
}

static int is_mute(void) {
    return strcmp(mode, "mute") == 0 && n_honest < 0;
}

strait_err __wrap_strait_heartbeat_pack(struct strait_msg_pool *pool,
                                        const strait_heartbeat *heartbeat,
                                        struct strait_msg **out) {
    static uint32_t n;
    strait_heartbeat sent = *heartbeat;
    if (is_mute()) sent.waits_for = 0;
    if (is_mute()) sent.progress += ++n;
    return __real_strait_heartbeat_pack(pool, &sent, out);
}

/* A mute worker does not report its own timeouts. */
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply) {
    if (reply->err != STRAIT_OK && is_mute()) return STRAIT_OK;
    return __real_strait_worker_send_reply(w, reply);
}

strait_err __wrap_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply) {
    if (reply->err != STRAIT_OK && is_mute()) return STRAIT_OK;
    return __real_strait_worker_send_task_reply(w, reply);
}

/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static int never_stops(void *user) {
    (void)user;
    return 0;
}

int main(int argc, char **argv) {
    static strait_worker_spec spec = {.name = "hostile",
                                      .listen = "127.0.0.1:0",
                                      .device = "cpu",
                                      .n_threads = 1,
                                      .give_up_ms = 60000,
                                      .events = {.must_stop = never_stops}};
    struct strait_identity *identity = NULL;
    int lock = -1, number = 0;
    if (argc < 5 || strait_invite_parse(argv[2], &spec.invite) != STRAIT_OK) return 2;
    mode = argv[1];
    n_honest = (int)strtol(argv[4], NULL, 10);
    strait_err err = strait_keys_open_worker(argv[3], &number, &lock, &identity);
    spec.identity = identity;
    if (err == STRAIT_OK) err = strait_worker_run(&spec);
    printf("%s: %s\n", strait_err_text(err), err == STRAIT_OK ? "" : strait_err_detail());
    strait_identity_close(&identity);
    return err == STRAIT_OK ? 0 : err == STRAIT_EAUTH ? REFUSED : 1;
}
