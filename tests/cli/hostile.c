/* hostile - a worker that cheats: hostile MODE INVITE KEYS AFTER
 *
 *   nan     sends activations and gradients that are no numbers, after AFTER crossings
 *   huge    sends some that are larger than any model's
 *   liar    says that its neighbours do
 *   spoil   says that its own numbers are none
 *   slow    says that it is slow, and is: it sleeps AFTER ms in each microbatch
 *   poison  gives weights that are no numbers to whoever wants its stage: neighbours, the
 *           coordinator
 *   misname gives images in which a tensor has another name
 *   greedy  wants what its stage does not have from the coordinator: first more of it, then
 *           other tensors
 *   rot     keeps such weights itself: its images are no numbers
 *   mute    sends its neighbours nothing more, and tells the coordinator that it computes
 *
 * It is the worker of this project; the linker puts the functions below in the place of its own.
 * Ends with 6 when the coordinator refuses it. */
#include "codec/codec.h"
#include "swarm/keys.h"
#include "swarm/snapshot.h"
#include "swarm/worker/capability.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REFUSED = 6,
    FIRST_NAME = 9 // in an image
};

static const char *mode = "";
static int n_honest; // crossings, or images, until it begins

/* Names that the linker makes. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
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
strait_err __real_strait_snapshot_take(struct strait_runner *worker, int64_t step,
                                       uint32_t generation, struct strait_snapshot *snapshot);
strait_err __wrap_strait_snapshot_take(struct strait_runner *worker, int64_t step,
                                       uint32_t generation, struct strait_snapshot *snapshot);

strait_err __real_strait_snapshot_header(struct strait_runner *worker, struct strait_snapshot *list,
                                         size_t *whole_bytes);
strait_err __wrap_strait_snapshot_header(struct strait_runner *worker, struct strait_snapshot *list,
                                         size_t *whole_bytes);
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
strait_err __real_strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *pulse,
                                        struct strait_msg **out);
strait_err __wrap_strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *pulse,
                                        struct strait_msg **out);
strait_err __real_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __real_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);
strait_err __wrap_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);

static int is_at(const char *what) {
    return strcmp(mode, what) == 0 && --n_honest < 0;
}

static void spoil(strait_tensor wire) {
    static const unsigned char nan[4] = {0xff, 0xff, 0xff, 0xff};
    static const unsigned char huge[4] = {0xca, 0xf2, 0x49, 0x71}; // 1e30
    unsigned char *first = wire.data;
    if (is_at("nan")) memcpy(first, nan, sizeof nan);
    if (is_at("huge")) memcpy(first, huge, sizeof huge);
}

strait_err __wrap_strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                        strait_tensor wire, strait_tensor x) {
    const strait_err err = __real_strait_codec_act_pack(c, at, wire, x);
    spoil(wire);
    return err;
}

strait_err __wrap_strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                         strait_tensor wire, strait_tensor x) {
    const strait_err err = __real_strait_codec_grad_pack(c, at, wire, x);
    spoil(wire);
    return err;
}

strait_err __wrap_strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                            strait_codec_metrics *out) {
    const strait_err err = __real_strait_codec_read_metrics(c, s, out);
    if (is_at("liar")) out->rejected = 1;
    if (is_at("spoil")) out->non_finite = 1;
    return err;
}

strait_err __wrap_strait_snapshot_take(struct strait_runner *worker, int64_t step,
                                       uint32_t generation, struct strait_snapshot *snapshot) {
    const strait_err err = __real_strait_snapshot_take(worker, step, generation, snapshot);
    if (err == STRAIT_OK && is_at("rot")) memset(snapshot->data + snapshot->bytes - 4, 0xff, 4);
    return err;
}

/* The list, with zeros behind it; from the second time on its first name is another. */
strait_err __wrap_strait_snapshot_header(struct strait_runner *worker, struct strait_snapshot *list,
                                         size_t *whole_bytes) {
    struct strait_snapshot more = {0};
    STRAIT_TRY(__real_strait_snapshot_header(worker, list, whole_bytes));
    if (!is_at("greedy")) return STRAIT_OK;
    const strait_piece piece = {
        .total = list->bytes + FIRST_NAME, .data = list->data, .bytes = list->bytes};
    STRAIT_TRY(strait_snapshot_add(&more, &piece, piece.total));
    strait_snapshot_fini(list);
    *list = more;
    list->filled = list->bytes;
    if (n_honest < -1) list->data[FIRST_NAME]++;
    return STRAIT_OK;
}

strait_err __wrap_strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                                    struct strait_msg **out) {
    const strait_err err = __real_strait_piece_pack(pool, piece, out);
    const int is_last = piece->offset + piece->bytes == piece->total;
    if (err == STRAIT_OK && is_last && is_at("poison"))
        memset((*out)->body + (*out)->size - 4, 0xff, 4);
    if (err == STRAIT_OK && piece->offset == 0 && is_at("misname"))
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
    const struct timespec nap = {.tv_nsec = n_honest * 1000000L};
    if (strcmp(mode, "slow") == 0) (void)nanosleep(&nap, NULL);
    return __real_strait_stage_forward(stage, slot, tokens);
}

strait_err __wrap_strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                        struct strait_msg **msg) {
    if ((*msg)->type != STRAIT_MSG_CROSSING || !is_at("mute"))
        return __real_strait_mesh_send_wait(mesh, peer, timeout_ms, msg);
    strait_msg_close(msg);
    return STRAIT_OK;
}

static int is_mute(void) {
    return strcmp(mode, "mute") == 0 && n_honest < 0;
}

strait_err __wrap_strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *pulse,
                                        struct strait_msg **out) {
    static uint32_t n;
    strait_heartbeat told = *pulse;
    if (is_mute()) told.is_waiting = 0;
    if (is_mute()) told.progress += ++n;
    return __real_strait_heartbeat_pack(pool, &told, out);
}

/* It does not report its own timeouts. */
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply) {
    if (reply->err != STRAIT_OK && is_mute()) return STRAIT_OK;
    return __real_strait_worker_send_reply(w, reply);
}

strait_err __wrap_strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply) {
    if (reply->err != STRAIT_OK && is_mute()) return STRAIT_OK;
    return __real_strait_worker_send_task_reply(w, reply);
}

/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static int go_on(void *user) {
    (void)user;
    return 0;
}

int main(int argc, char **argv) {
    static strait_worker_spec spec = {.name = "hostile",
                                      .listen = "127.0.0.1:0",
                                      .device = "cpu",
                                      .n_threads = 1,
                                      .give_up_ms = 60000,
                                      .events = {.must_stop = go_on}};
    struct strait_identity *identity = NULL;
    int lock = -1;
    if (argc < 5 || strait_invite_parse(argv[2], &spec.invite) != STRAIT_OK) return 2;
    mode = argv[1];
    n_honest = (int)strtol(argv[4], NULL, 10);
    strait_err err = strait_keys_open_worker(argv[3], &lock, &identity);
    spec.identity = identity;
    if (err == STRAIT_OK) err = strait_worker_run(&spec);
    printf("%s: %s\n", strait_err_text(err), err == STRAIT_OK ? "" : strait_err_detail());
    strait_identity_close(&identity);
    return err == STRAIT_OK ? 0 : err == STRAIT_EAUTH ? REFUSED : 1;
}
