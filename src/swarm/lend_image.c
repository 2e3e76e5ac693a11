/* lend_image.c - the images a worker keeps: its own, and copies of a neighbour's. */
#include "base/clock.h"
#include "swarm/lend_state.h"

enum {
    SEND_MS = 60000, // for a piece
    LOOK_MS = 20,
    RATE_MS = 500
};

static const double share = 0.2;        // of the link, for copies in the background
static const double first_bps = 8e6;    // until its rate is known
static const double most_bps = 4e8;     // more would cost computing its core
static const double burst_s = 0.25;     // of the share, that may go at once
static const double piece_s = 0.01;     // of the line, that others may have to wait for a piece
static const double piece_bytes = 4096; // or this

struct strait_image *strait_lend_find(struct strait_image *images, int n, int stage, int64_t step) {
    for (int i = 0; i < n; i++)
        if (strait_image_is_whole(&images[i]) && images[i].stage == stage && images[i].step == step)
            return &images[i];
    return NULL;
}

struct strait_image *strait_lend_place(struct lend *l) {
    struct strait_image *place = NULL;
    int64_t newest = -1;
    for (int i = 0; i < STRAIT_SWARM_IMAGES; i++)
        if (strait_image_is_whole(&l->own[i]) && l->own[i].step > newest) newest = l->own[i].step;
    for (int i = 0; i < STRAIT_SWARM_IMAGES; i++) {
        struct strait_image *image = &l->own[i];
        if (!strait_image_is_whole(image)) return image;
        if (image == l->sending || image->step == newest) continue;
        if (place == NULL || image->step < place->step) place = image;
    }
    return place;
}

static void list(const struct strait_image *images, int n, strait_swarm_holding *out) {
    *out = (strait_swarm_holding){.stage = -1};
    for (int i = 0; i < n; i++) {
        if (!strait_image_is_whole(&images[i])) continue;
        out->stage = images[i].stage;
        out->steps[out->n] = images[i].step;
        out->born[out->n++] = images[i].born;
    }
}

void strait_lend_holdings(const struct lend *l, strait_swarm_held *out) {
    list(l->own, STRAIT_SWARM_IMAGES, &out->own);
    list(l->copies[0], STRAIT_LEND_COPIES, &out->before);
    list(l->copies[1], STRAIT_LEND_COPIES, &out->behind);
}

static void forget(struct strait_image *image) {
    image->bytes = image->filled = 0; // the memory stays, for the next
}

void strait_lend_trim(struct lend *l, int64_t step) {
    for (int i = 0; i < STRAIT_SWARM_IMAGES; i++)
        if (l->own[i].step > step) forget(&l->own[i]);
    for (int i = 0; i < 2 * STRAIT_LEND_COPIES; i++) {
        struct strait_image *copy = &l->copies[i / STRAIT_LEND_COPIES][i % STRAIT_LEND_COPIES];
        if (copy->step > step || !strait_image_is_whole(copy)) forget(copy);
    }
    l->sending = NULL;
}

/* Waits until the link takes it, and looks up meanwhile: others may be sending to us. */
static strait_err send_patiently(struct lend *l, struct strait_mesh *mesh, int peer,
                                 struct strait_msg **msg) {
    const int64_t until = strait_clock_ns() + SEND_MS * INT64_C(1000000);
    for (;;) {
        const strait_err err = strait_mesh_send_wait(mesh, peer, LOOK_MS, msg);
        if (err == STRAIT_OK) l->progress++;
        if (err != STRAIT_ETIMEDOUT && err != STRAIT_OK) return err;
        STRAIT_TRY(mesh == l->control ? strait_lend_look_up(l) : strait_lend_look(l));
        if (err == STRAIT_OK) return STRAIT_OK;
        if (strait_clock_ns() > until)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "an image was not taken for %d s", SEND_MS / 1000);
    }
}

strait_err strait_lend_send_all(struct lend *l, struct strait_mesh *mesh, int peer,
                                const struct strait_image *image, strait_priority priority) {
    strait_err err = STRAIT_OK;
    for (size_t at = 0; at < image->bytes && err == STRAIT_OK;) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        strait_image_next(image, &at, &piece);
        err = strait_piece_pack(strait_mesh_pool(mesh), &piece, &msg);
        if (err == STRAIT_OK) {
            msg->priority = (uint8_t)priority;
            err = send_patiently(l, mesh, peer, &msg);
        }
        strait_msg_close(&msg);
    }
    return err;
}

/* The line's rate: what the kernel lately saw delivered, or what is emulated above it. */
static double line_bps(struct lend *l, int peer) {
    const double emulated = l->server.recipe.emulate.rate_bps;
    const int64_t now = strait_clock_ns();
    if (now - l->rate_ns > RATE_MS * INT64_C(1000000)) { // asking costs a turn of the net thread
        strait_link_stats stats = {0};
        if (strait_mesh_stats(l->server.mesh, peer, &stats) == STRAIT_OK)
            l->rate_bps = stats.delivery_bps;
        l->rate_ns = now;
    }
    const double rate = l->rate_bps > 0.0 ? l->rate_bps : first_bps;
    return emulated > 0.0 && emulated < rate ? emulated : rate;
}

static double background_bps(double bps) {
    return share * bps < most_bps ? share * bps : most_bps;
}

static int copier(const struct lend *l) {
    return l->server.behind >= 0 ? l->server.behind : l->server.before;
}

double strait_lend_copy_seconds(struct lend *l, size_t bytes) {
    const int peer = copier(l);
    return peer < 0 ? 0.0 : (double)bytes * 8.0 / background_bps(line_bps(l, peer));
}

/* What the background may send by now; time that was not used is soon forgotten. */
static void earn(struct lend *l, double bps) {
    const int64_t now = strait_clock_ns();
    const double rate = background_bps(bps);
    l->credit += (double)(now - l->credit_ns) * 1e-9 * rate / 8.0;
    if (l->credit > burst_s * rate / 8.0) l->credit = burst_s * rate / 8.0;
    l->credit_ns = now;
}

/* The next piece of the image that is being sent, not larger than the line can bear. */
static strait_err send_next(struct lend *l, int peer, double bps) {
    const double limit = piece_s * bps / 8.0 > piece_bytes ? piece_s * bps / 8.0 : piece_bytes;
    strait_piece piece;
    size_t at = l->sent;
    strait_image_next(l->sending, &at, &piece);
    piece.must_keep = 1;
    if (!l->is_urgent && (double)piece.bytes > limit) piece.bytes = (size_t)limit;
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_piece_pack(strait_mesh_pool(l->server.mesh), &piece, &msg));
    const strait_err err = strait_mesh_send(l->server.mesh, peer, &msg);
    strait_msg_close(&msg);
    STRAIT_TRY(err);
    l->sent += piece.bytes;
    l->credit -= (double)piece.bytes;
    strait_lend_pass(l, STRAIT_LEND_COPY, l->sending->step);
    if (l->sent == l->sending->bytes) l->sending = NULL;
    return STRAIT_OK;
}

void strait_lend_send_some(struct lend *l) {
    const int peer = copier(l);
    if (l->sending == NULL) return;
    if (peer < 0) {
        l->sending = NULL;
        return;
    }
    const double bps = line_bps(l, peer);
    earn(l, bps);
    while (l->sending != NULL && (l->is_urgent || l->credit > 0.0))
        if (send_next(l, peer, bps) != STRAIT_OK) return; // no room now
}

/* The copy that the next pieces belong to: the one they began, or the older of the two. */
static struct strait_image *copy_for(struct strait_image *copies, const strait_piece *piece) {
    struct strait_image *oldest = &copies[0];
    for (int i = 0; i < STRAIT_LEND_COPIES; i++) {
        struct strait_image *copy = &copies[i];
        const int is_begun = copy->bytes > 0 && !strait_image_is_whole(copy);
        if (piece->offset > 0 && is_begun && copy->step == piece->step) return copy;
        if (is_begun || copy->bytes == 0) {
            oldest = copy;
        } else if (strait_image_is_whole(oldest) && copy->step < oldest->step) {
            oldest = copy;
        }
    }
    return oldest;
}

/* No stage takes more than the whole model does. Only the first piece makes room, and those behind
 * it must agree with it: a copy comes in thousands, beside the training. */
static size_t size_limit(const struct lend *l, const struct strait_image *image,
                         const strait_piece *piece) {
    size_t sum = 1 << 20;
    if (piece->offset > 0) return image->bytes;
    for (int i = 0; i < l->server.recipe.n_stages; i++) {
        strait_worker_memory memory;
        if (strait_worker_plan(&l->server.recipe, i, 1, &memory) != STRAIT_OK) continue;
        sum += 2 * (memory.weights + memory.optimizer + memory.activations + memory.codecs);
    }
    return sum;
}

/* Whoever keeps a copy that is no use would be blamed for it later. */
static void inspect(struct lend *l, struct strait_image *copy, int is_behind) {
    if (strait_image_match(copy, &l->server.recipe) == STRAIT_OK &&
        strait_image_check(copy) == STRAIT_OK)
        return;
    strait_lend_note(l, "a neighbour's copy is dropped: %s", strait_err_detail());
    l->n_refused[is_behind ? STRAIT_HEAD : STRAIT_TAIL]++;
    forget(copy);
}

strait_err strait_lend_piece(struct lend *l, const struct strait_msg *msg, int is_host) {
    strait_piece piece;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (!piece.must_keep || is_host) {
        l->progress++;
        return strait_image_add(&l->incoming, &piece, size_limit(l, &l->incoming, &piece));
    }
    if (l->is_giving) return STRAIT_OK; // what is being sent must not change; nobody copies now
    const int is_behind = msg->peer == l->server.behind;
    if (piece.stage != l->server.start.stage + (is_behind ? 1 : -1))
        return STRAIT_FAIL(STRAIT_EPROTO, "a neighbour sent a copy of stage %d, which is not its",
                           piece.stage);
    struct strait_image *copies = l->copies[is_behind];
    for (int i = 0; i < STRAIT_LEND_COPIES; i++) // of a stage that is no longer beside ours
        if (copies[i].stage != piece.stage) forget(&copies[i]);
    struct strait_image *copy = copy_for(copies, &piece);
    STRAIT_TRY(strait_image_add(copy, &piece, size_limit(l, copy, &piece)));
    if (strait_image_is_whole(copy)) inspect(l, copy, is_behind);
    return STRAIT_OK;
}
