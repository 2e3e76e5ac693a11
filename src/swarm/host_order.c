/* host_order.c - what goes out to a worker when the machine has an order for it. */
#include "base/clock.h"
#include "net/relay_wire.h"
#include "swarm/host_state.h"

#include <stdio.h>
#include <string.h>

enum {
    VOCAB_NARROW = 65535,         // ids below this take two bytes
    GIFT_AHEAD = 8 * 1024 * 1024, // bytes of an image that wait for a link
    OTHERS_MAX = 16 * 1024 * 1024 // and of what else may
};

static void send_task(struct host *h, int node, strait_task *task) {
    struct strait_msg *msg = NULL;
    task->epoch = h->machine.epoch;
    task->round = (uint16_t)h->machine.round;
    if (strait_task_pack(h->pool, task, &msg) == STRAIT_OK)
        strait_host_send(h, strait_host_guest(h, node), &msg);
}

void strait_host_rest(struct host *h, int node, strait_task_kind kind) {
    memset(&h->task, 0, sizeof h->task);
    h->task.kind = kind;
    send_task(h, node, &h->task);
}

void strait_host_refuse(struct host *h, struct guest *guest, const char *words) {
    struct strait_msg *msg = NULL;
    memset(&h->task, 0, sizeof h->task);
    h->task.kind = STRAIT_TASK_REFUSE;
    (void)snprintf(h->task.text, sizeof h->task.text, "%s", words);
    if (strait_task_pack(h->pool, &h->task, &msg) == STRAIT_OK) strait_host_send(h, guest, &msg);
    strait_host_dismiss(h, guest, STRAIT_OK, words);
}

/* Who reaches whom over boundary `i`, between stages i and i + 1. */
enum way {
    BEFORE_DIALS,
    BEHIND_DIALS,
    BY_RELAY,
    N_WAYS
};

static int can_dial(struct host *h, int stage) {
    const struct guest *guest = strait_host_guest(h, h->machine.owner[stage]);
    return guest != NULL && guest->address[0] != '\0';
}

/* The first that is possible; after each time that they did not meet, the one after it. */
static enum way choose_way(struct host *h, int i) {
    for (int k = 0; k < N_WAYS; k++) {
        const enum way way = (enum way)((h->n_missed[i] + k) % N_WAYS);
        if (way == BEFORE_DIALS && can_dial(h, i + 1)) return way;
        if (way == BEHIND_DIALS && can_dial(h, i)) return way;
        if (way == BY_RELAY && h->spec->relay != NULL) return way;
    }
    strait_host_note(h, "stages %d and %d cannot reach each other: start the host with --relay", i,
                     i + 1);
    return BEFORE_DIALS;
}

/* A meeting place that nobody can guess, known to the two sides and the relay. */
static void draw_relayed(struct host *h, int i) {
    strait_relay_token token;
    h->relayed[i][0] = '\0';
    if (strait_identity_draw(token.bytes, sizeof token.bytes) == STRAIT_OK)
        (void)strait_relay_address_print(h->spec->relay, &token, h->relayed[i],
                                         sizeof h->relayed[i]);
}

/* The other side of boundary `i`, as seen from before it (is_behind) or behind it. Orders go out by
 * stage, so the side before comes first. */
static void fill_peer(struct host *h, int i, int is_behind, strait_task_peer *peer) {
    const int node = h->machine.owner[i + (is_behind != 0)];
    const struct guest *guest = strait_host_guest(h, node);
    const int is_new = is_behind && h->machine.phase == STRAIT_SWARM_MEET;
    if (is_new) h->ways[i] = (int)choose_way(h, i);
    if (is_new && h->ways[i] == BY_RELAY) draw_relayed(h, i);
    const enum way way = (enum way)h->ways[i];
    peer->is_there = 1;
    peer->key = h->machine.nodes[node].key;
    peer->must_listen = way == BY_RELAY && !is_behind;
    if (way == BY_RELAY)
        memcpy(peer->address, h->relayed[i], sizeof peer->address);
    else if (guest != NULL && way == (is_behind ? BEFORE_DIALS : BEHIND_DIALS))
        memcpy(peer->address, guest->address, sizeof peer->address);
}

static void send_meet(struct host *h, const strait_swarm_action *a) {
    memset(&h->task, 0, sizeof h->task);
    h->task.kind = h->machine.phase == STRAIT_SWARM_MEET ? STRAIT_TASK_MEET : STRAIT_TASK_DIAL;
    h->task.stage = a->stage;
    if (a->stage > 0) fill_peer(h, a->stage - 1, 0, &h->task.before);
    if (a->stage + 1 < h->machine.config.n_stages) fill_peer(h, a->stage, 1, &h->task.behind);
    send_task(h, a->node, &h->task);
}

static void send_take(struct host *h, const strait_swarm_action *a) {
    struct guest *guest = strait_host_guest(h, a->node);
    memset(&h->task, 0, sizeof h->task);
    h->task.kind = STRAIT_TASK_TAKE;
    h->task.stage = a->stage;
    h->task.valid_windows = strait_feed_valid_windows(h->crew->feed);
    memcpy(h->task.text, h->task_text, sizeof h->task.text);
    if (guest != NULL) guest->has_valid = 0;
    send_task(h, a->node, &h->task);
}

static void send_order(struct host *h, int node, const strait_order *order) {
    struct strait_msg *msg = NULL;
    if (strait_order_pack(h->pool, order, &msg) != STRAIT_OK) return;
    msg->step = h->machine.epoch;
    msg->microbatch = (uint16_t)h->machine.round;
    strait_host_send(h, strait_host_guest(h, node), &msg);
}

/* ---- token ids ---- */

static strait_err send_ids(struct host *h, const strait_swarm_action *a, strait_ids ids) {
    struct strait_msg *msg = NULL;
    const strait_recipe *recipe = &h->crew->recipe;
    ids.n = recipe->microbatch * recipe->shape.context;
    ids.is_wide = recipe->shape.vocab >= VOCAB_NARROW;
    int32_t *targets = h->ids + ids.n;
    STRAIT_TRY(ids.is_valid
                   ? strait_feed_draw_valid(h->crew->feed, ids.batch, h->ids, targets)
                   : strait_feed_draw(h->crew->feed, ids.step, ids.batch, h->ids, targets));
    ids.tokens = strait_recipe_needs_tokens(recipe, a->stage) ? h->ids : NULL;
    ids.targets = a->stage == recipe->n_stages - 1 ? targets : NULL;
    if (ids.tokens == NULL && ids.targets == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_ids_pack(h->pool, &ids, &msg));
    h->ids_bytes += msg->size;
    strait_host_send(h, strait_host_guest(h, a->node), &msg);
    return STRAIT_OK;
}

/* All ids of a validation wait for a link at once. */
strait_err strait_host_check_valid(const struct strait_feed *feed, const strait_recipe *recipe) {
    const int64_t context = recipe->shape.context, n_windows = strait_feed_valid_windows(feed);
    const int64_t id_bytes = recipe->shape.vocab >= VOCAB_NARROW ? 4 : 2;
    int64_t most = (STRAIT_HOST_OUT_MAX - OTHERS_MAX) / (2 * id_bytes * context);
    if (most > STRAIT_VALID_MAX) most = STRAIT_VALID_MAX;
    if (n_windows <= most) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "data.valid: a swarm validates on %lld tokens at most, and there are %lld: "
                       "set data.valid_tokens",
                       (long long)(most * context), (long long)(n_windows * context));
}

static strait_err send_all_ids(struct host *h, const strait_swarm_action *a) {
    struct guest *guest = strait_host_guest(h, a->node);
    if (h->order->kind == STRAIT_ORDER_GRADIENTS)
        for (int64_t i = 0; i < h->crew->recipe.n_microbatches; i++)
            STRAIT_TRY(send_ids(h, a, (strait_ids){.step = h->order->step, .batch = i}));
    if (h->order->kind != STRAIT_ORDER_VALIDATE || guest == NULL || guest->has_valid)
        return STRAIT_OK;
    for (int64_t i = 0; i < strait_feed_valid_batches(h->crew->feed); i++)
        STRAIT_TRY(send_ids(h, a, (strait_ids){.is_valid = 1, .batch = i}));
    guest->has_valid = 1;
    return STRAIT_OK;
}

static void fail(struct host *h, strait_err err) {
    if (h->fatal != STRAIT_OK) return;
    h->fatal = err;
    (void)snprintf(h->words, sizeof h->words, "%s", strait_err_detail());
}

static void send_work(struct host *h, const strait_swarm_action *a) {
    static _Thread_local strait_order order; // large
    const strait_err err = send_all_ids(h, a);
    if (err != STRAIT_OK) fail(h, err);
    order = *h->order;
    order.text[0] = '\0'; // paths of ours are nobody else's
    if (order.kind == STRAIT_ORDER_OPEN && order.number == 0)
        order.number = h->crew->windows[a->stage];
    if (order.kind == STRAIT_ORDER_UPDATE)
        order.number = (order.step + 1) % h->keep_every == 0 &&
                       !strait_recipe_turns(&h->crew->recipe, order.step + 1);
    send_order(h, a->node, &order);
}

static void offer(struct host *h, int node) {
    struct guest *guest = strait_host_guest(h, node);
    if (guest != NULL) guest->offered = h->machine.epoch;
}

void strait_host_order(struct host *h, const strait_swarm_action *a) {
    static _Thread_local strait_order order;
    switch (h->machine.phase) {
    case STRAIT_SWARM_TAKE:
        h->formed_ns = strait_clock_ns();
        send_take(h, a);
        break;
    case STRAIT_SWARM_MEET:
    case STRAIT_SWARM_DIAL: send_meet(h, a); break;
    case STRAIT_SWARM_OPEN:
        order = (strait_order){.kind = STRAIT_ORDER_OPEN,
                               .number = h->windows[a->stage] > 0 ? h->windows[a->stage] : 1};
        send_order(h, a->node, &order);
        break;
    case STRAIT_SWARM_RESTORE:
    case STRAIT_SWARM_KEEP:
        memset(&h->task, 0, sizeof h->task);
        h->task.kind = h->machine.phase == STRAIT_SWARM_KEEP ? STRAIT_TASK_KEEP
                                                             : STRAIT_TASK_RESTORE;
        h->task.stage = a->stage;
        h->task.step = a->step;
        h->task.source = a->source;
        h->task.gives_before = a->gives_before;
        h->task.gives_behind = a->gives_behind;
        if (h->task.kind == STRAIT_TASK_RESTORE && a->source == STRAIT_SWARM_FROM_HOST)
            offer(h, a->node);
        send_task(h, a->node, &h->task);
        break;
    case STRAIT_SWARM_WORK: send_work(h, a); break;
    default: break;
    }
}

/* ---- restoring from a checkpoint ---- */

/* An image may be larger than all that may wait for a link. */
strait_err strait_host_give_more(struct host *h, struct guest *guest) {
    struct strait_gift *gift = &guest->gift;
    while (!strait_gift_is_over(gift) && guest->out.n_bytes < GIFT_AHEAD) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        if (guest->given != h->machine.epoch || guest->link == NULL || guest->must_close) break;
        STRAIT_TRY(strait_gift_next(gift, &piece));
        STRAIT_TRY(strait_piece_pack(h->pool, &piece, &msg));
        msg->priority = STRAIT_PRIORITY_CONTROL;
        strait_host_send(h, guest, &msg);
    }
    if (strait_gift_is_over(gift) || guest->given != h->machine.epoch) strait_gift_fini(gift);
    return STRAIT_OK;
}

/* The checkpoint of the step that the stages go back to: open as long as some of it is to be given,
 * because opening reads all of it. */
static strait_err open_giving(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++)
        if (h->guests[i].given != h->machine.epoch) strait_gift_fini(&h->guests[i].gift);
    if (h->giving != NULL && strait_checkpoint_step(h->giving) == h->machine.step) return STRAIT_OK;
    strait_checkpoint_close(&h->giving);
    STRAIT_TRY(strait_host_open_checkpoint(h, &h->giving));
    if (strait_checkpoint_step(h->giving) == h->machine.step) return STRAIT_OK;
    strait_checkpoint_close(&h->giving);
    return STRAIT_FAIL(STRAIT_EDATA, "%s: the checkpoint of step %lld is gone", h->spec->folder,
                       (long long)h->machine.step);
}

void strait_host_close_given(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++)
        if (h->guests[i].gift.checkpoint != NULL) return;
    strait_checkpoint_close(&h->giving);
}

/* A guest that wants other tensors than its stage has could not serve it. */
static strait_err check_wish(const struct host *h, int stage, const struct strait_msg *list) {
    struct strait_image wanted = {0};
    strait_err err = strait_image_expect(&h->crew->recipe, stage, &wanted);
    if (err == STRAIT_OK)
        err = strait_image_list_match(list->body, list->size, wanted.data, wanted.bytes);
    if (err == STRAIT_OK && list->size != wanted.bytes) err = strait_image_list_wrong();
    strait_image_fini(&wanted);
    return err;
}

static void blame(struct host *h, int node, int stage) {
    strait_host_note(h, "%s, stage %d: what it wants is not its stage: %s",
                     h->machine.nodes[node].report.name, stage, strait_err_detail());
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_BLAME, .node = node});
}

strait_err strait_host_give(struct host *h, struct guest *guest, const struct strait_msg *list) {
    struct strait_gift *gift = &guest->gift;
    const int stage = h->machine.nodes[guest->node].stage;
    if (h->machine.phase != STRAIT_SWARM_RESTORE || list->step != h->machine.epoch || stage < 0 ||
        guest->given == h->machine.epoch || h->crew == NULL)
        return STRAIT_OK; // late, or had already
    strait_err err = STRAIT_OK;
    if (guest->offered == h->machine.epoch)
        err = check_wish(h, stage, list);
    else
        err = STRAIT_FAIL(STRAIT_EPROTO, "nobody sent it to the checkpoint");
    if (err == STRAIT_EDATA || err == STRAIT_EPROTO) {
        blame(h, guest->node, stage);
        return STRAIT_OK;
    }
    if (err == STRAIT_OK) err = open_giving(h);
    if (err == STRAIT_OK)
        err = strait_gift_init(gift, h->giving, list->body, list->size,
                               (size_t)h->machine.config.need_bytes[stage] + (1 << 20));
    if (err == STRAIT_EDATA || err == STRAIT_EIO) {
        fail(h, err); // the checkpoint is no use, and no guest can help it
        return STRAIT_OK;
    }
    STRAIT_TRY(err);
    guest->given = gift->born = h->machine.epoch;
    gift->stage = stage;
    gift->step = h->machine.step;
    return strait_host_give_more(h, guest);
}
