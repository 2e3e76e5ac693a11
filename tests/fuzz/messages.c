/* Fuzzes what a host and a worker do with messages, by the table of all messages (liar/messages.h).
 *
 * The input is a list of moves. Most build a message: its kind and fields are drawn from the bytes,
 * by name of a value or bit by bit, and the packed message may be cut, extended or damaged. Every
 * receiver then gets it: the parsers (swarm_parsers.h), the real dispatch of a host with three
 * stages and five workers, and the two sides of a boundary. The other moves let the run go on:
 * honest replies to what is awaited, the trainer's next command, time. No message may end the run,
 * whoever sends it. */
#include "liar/messages.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "liar/values.h"
#include "stage/boundary/boundary.h"
#include "swarm/host/state.h"
#include "swarm_parsers.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    N_STAGES = 3,
    N_WORKERS = 5,
    ROWS = 2,
    COLS = 4,
    N_MICROBATCHES = 4
};

/* ---- a host without sockets, disk and stages ---- */

static struct host host;
static struct strait_executor executor;
static struct strait_link links[N_WORKERS];
static float floats[N_STAGES * FLOATS];

static strait_err send_nowhere(struct strait_link *link, struct strait_msg **msg) {
    (void)link;
    strait_msg_close(msg);
    return STRAIT_OK;
}

static void close_nothing(struct strait_link *link, strait_err why) {
    (void)link;
    (void)why;
}

static void pause_nothing(struct strait_link *link, int is_paused) {
    (void)link;
    (void)is_paused;
}

static const struct strait_transport_ops nowhere = {
    .scheme = "nowhere", .send = send_nowhere, .close = close_nothing, .pause = pause_nothing};
static struct strait_transport transport = {.ops = &nowhere};

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __wrap_strait_host_put(struct host *h, const char *key, const void *data, size_t bytes);
strait_err __wrap_strait_host_put_once(struct host *h, const char *key, const void *data,
                                       size_t bytes);
strait_err __wrap_strait_host_admit(struct host *h, const strait_fingerprint *key,
                                    const char *name);
void __wrap_strait_host_command(struct host *h, const strait_swarm_action *action);

/* The metastore takes everything. */
strait_err __wrap_strait_host_put(struct host *h, const char *key, const void *data, size_t bytes) {
    (void)h;
    (void)key;
    (void)data;
    (void)bytes;
    return STRAIT_OK;
}

strait_err __wrap_strait_host_put_once(struct host *h, const char *key, const void *data,
                                       size_t bytes) {
    return __wrap_strait_host_put(h, key, data, bytes);
}

strait_err __wrap_strait_host_admit(struct host *h, const strait_fingerprint *key,
                                    const char *name) {
    (void)h;
    (void)key;
    (void)name;
    return STRAIT_OK;
}

void __wrap_strait_host_command(struct host *h, const strait_swarm_action *action) {
    (void)h;
    (void)action;
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static void deliver(int worker, struct strait_msg **msg) {
    strait_priority_queue_push(&host.links.items[worker].in, msg);
    strait_host_dispatch(&host);
    for (int i = 0; i < N_WORKERS; i++) { // what the transport does after a link was closed
        struct connection *connection = &host.links.items[i];
        if (!connection->must_close) continue;
        strait_host_connections.closed(&host, &links[i], STRAIT_ECLOSED);
        strait_host_dispatch(&host);
        strait_host_connections.opened(&host, &links[i]);
    }
    if (host.failure.err != STRAIT_OK) abort();
}

static void join(int worker) {
    strait_join request = {.report = {.name = "worker", .flops = 1e9}};
    struct strait_msg *msg = NULL;
    request.inventory = strait_snapshot_inventory_empty();
    if (strait_join_pack(host.pool, &request, &msg) == STRAIT_OK) deliver(worker, &msg);
}

/* The plan and the data tell what replies may claim. */
static void open_plan(void) {
    static const char text[] = "model: {width: 16, layers: 3, heads: 2, ffn: 16, context: 8, "
                               "vocab: 32}\n"
                               "train: {batch_tokens: 32}\n"
                               "stages: {count: 3, microbatch: 1}\n";
    if (executor.plan.n_stages > 0) return;
    if (strait_run_init_text("the run", text, sizeof text - 1, NULL, 0, &executor.run) !=
            STRAIT_OK ||
        strait_run_plan_init(&executor.run, executor.run.model.vocab, &executor.plan) !=
            STRAIT_OK ||
        strait_loader_open_remote(executor.run.model.vocab, 4, &executor.loader) != STRAIT_OK)
        abort();
}

static void open_host(void) {
    static const strait_host_spec spec = {.folder = "/nowhere/at/all"};
    static const strait_swarm_config config = {.n_stages = N_STAGES,
                                               .lease_ns = INT64_C(1) << 40,
                                               .stall_timeout_ns = INT64_C(1) << 40,
                                               .setup_timeout_ns = INT64_C(1) << 40,
                                               .need_bytes = {4096, 4096, 4096}};
    struct strait_msg_pool *pool = host.pool;
    if (pool == NULL && strait_msg_pool_open(&pool) != STRAIT_OK) abort();
    host = (struct host){.spec = &spec, .pool = pool, .t = &transport, .executor = &executor};
    open_plan();
    host.work.channel.replies.floats = floats;
    host.work.channel.replies.capacity = FLOATS;
    strait_coordinator_init(&host.coordinator, &config);
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        host.links.of_worker[i] = -1;
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++)
        host.links.items[i].worker = -1;
    for (int i = 0; i < N_WORKERS; i++) {
        links[i] = (struct strait_link){.transport = &transport};
        links[i].peer.bytes[0] = (unsigned char)(i + 1);
        strait_host_connections.opened(&host, &links[i]);
        join(i);
    }
    strait_host_feed_coordinator(&host, &(strait_swarm_event){.kind = STRAIT_SWARM_START});
}

static void close_host(void) {
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++)
        strait_host_connection_fini(&host.links.items[i]);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        strait_msg_close(&host.work.channel.replies.messages[i]);
}

/* ---- the run goes on ---- */

/* What the owner of a stage answers to the present phase. */
static void reply_honestly(int stage) {
    static const strait_task_kind tasks[] = {[STRAIT_PHASE_ASSIGN] = STRAIT_TASK_ASSIGN,
                                             [STRAIT_PHASE_LISTEN] = STRAIT_TASK_LISTEN,
                                             [STRAIT_PHASE_CONNECT] = STRAIT_TASK_CONNECT,
                                             [STRAIT_PHASE_RESTORE] = STRAIT_TASK_RESTORE,
                                             [STRAIT_PHASE_SNAPSHOT] = STRAIT_TASK_SNAPSHOT,
                                             [STRAIT_PHASE_HANDOVER] = 0};
    const struct strait_coordinator *c = &host.coordinator;
    strait_task_reply task = {
        .kind = tasks[c->phase], .generation = c->generation, .sequence = c->sequence};
    if (task.kind == STRAIT_TASK_ASSIGN) task.assign.address = "127.0.0.1:1";
    const strait_stage_reply reply = {.kind = c->phase == STRAIT_PHASE_OPEN ? STRAIT_COMMAND_OPEN
                                                                            : host.work.kind,
                                      .generation = c->generation,
                                      .sequence = c->sequence};
    struct strait_msg *msg = NULL;
    const int connection = host.links.of_worker[c->owner[stage]];
    if (connection < 0 || connection >= N_WORKERS) return;
    if (task.kind != 0)
        (void)strait_task_reply_pack(host.pool, &task, &msg);
    else
        (void)strait_stage_reply_pack(host.pool, &reply, &msg);
    if (msg != NULL) deliver(connection, &msg);
}

static void reply_all(void) {
    for (int i = 0; i < N_STAGES; i++)
        if (host.coordinator.phase != STRAIT_PHASE_WAITING &&
            host.coordinator.phase != STRAIT_PHASE_READY && host.coordinator.is_awaited[i] &&
            host.coordinator.owner[i] >= 0)
            reply_honestly(i);
}

static void command(int kind) {
    static const strait_stage_command_kind kinds[] = {
        STRAIT_COMMAND_GRADIENTS, STRAIT_COMMAND_UPDATE, STRAIT_COMMAND_VALIDATE,
        STRAIT_COMMAND_SEND_SNAPSHOT};
    if (host.coordinator.phase != STRAIT_PHASE_READY) return;
    host.work.kind = kinds[kind % 4];
    strait_host_feed_coordinator(
        &host, &(strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                     .goal = {.stage = -1,
                                              .step = host.coordinator.step,
                                              .is_update = host.work.kind == STRAIT_COMMAND_UPDATE,
                                              .is_begin = kind % 4 == 0}});
}

/* ---- a boundary ---- */

static struct strait_boundary *sides[2];

static void open_boundary(void) {
    static struct strait_backend *backend;
    if (strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &backend) !=
        STRAIT_OK)
        abort();
    for (int i = 0; i < 2; i++) {
        const strait_boundary_spec spec = {.codec = {.name = "none",
                                                     .variant = "fp32",
                                                     .rows = ROWS,
                                                     .cols = COLS,
                                                     .boundary = 1,
                                                     .n_boundaries = 2,
                                                     .n_slots = 2},
                                           .side = i == 0 ? STRAIT_SENDER : STRAIT_RECEIVER,
                                           .n_microbatches = N_MICROBATCHES,
                                           .n_valid = 3};
        if (strait_boundary_open(&spec, backend, &sides[i]) != STRAIT_OK) abort();
    }
}

static void cross(const struct strait_msg *msg, int64_t step) {
    for (int i = 0; i < 2; i++) {
        struct strait_msg *copy = NULL;
        if (message_like(msg, msg->size, &copy) != STRAIT_OK) return;
        memcpy(copy->body, msg->body, msg->size);
        strait_boundary_begin(sides[i], step);
        (void)strait_boundary_deliver(sides[i], &copy);
        if (strait_boundary_arrived(sides[i], 0) > N_MICROBATCHES) abort();
        strait_msg_close(&copy);
    }
}

/* ---- messages from bytes ---- */

struct input {
    const unsigned char *at;
    size_t left;
};

static unsigned take(struct input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

/* Copies up to `n` bytes; returns how many there were. */
static size_t take_bytes(struct input *in, size_t n, unsigned char *out) {
    if (n > in->left) n = in->left;
    memcpy(out, in->at, n);
    in->at += n;
    in->left -= n;
    return n;
}

/* Half of all fields keep what they have, the others get a value with a name, or their next bytes.
 */
static void draw_fields(struct input *in, const strait_layout *layout, unsigned char *object,
                        struct value_memory *memory) {
    for (int i = 0; layout != NULL && i < layout->n_fields; i++) {
        const strait_field *field = &layout->fields[i];
        const unsigned choice = take(in);
        const char *const *values = values_of(field->type);
        unsigned n = 0;
        while (values[n] != NULL)
            n++;
        const int is_plain = field->type < STRAIT_FIELD_BYTES;
        memory->state = choice;
        if (choice >= 192 && is_plain)
            for (size_t k = 0; k < field->size; k++)
                object[field->offset + k] = (unsigned char)take(in);
        else if (choice >= 96)
            value_set(field, object + field->offset, values[choice % n], memory);
    }
}

static void damage(struct input *in, struct strait_msg *msg) {
    const unsigned how = take(in);
    if (how % 4 == 1) msg->size -= msg->size * take(in) / 256;
    if (how % 4 == 2 && msg->size > 0)
        msg->body[(take(in) << 8 | take(in)) % msg->size] ^= (unsigned char)take(in);
    if (how % 4 == 3) msg->size = msg->size > 0 ? msg->size - 1 : 0;
    msg->flags = how >= 128 ? (unsigned char)take(in) : msg->flags;
}

/* A message of the present generation, so that most are not taken for late ones. */
static struct strait_msg *draw_message(struct input *in) {
    static struct parcel parcel;
    static struct value_memory memory;
    static unsigned char rest[256];
    struct strait_msg frame = {.pool = host.pool}, *msg = NULL;
    int n = 0;
    while (message_at(n) != NULL)
        n++;
    parcel.row = message_at((int)take(in) % n);
    const int kind = parcel.row->n_kinds > 0 ? 1 + (int)take(in) % (parcel.row->n_kinds - 1) : 0;
    parcel.body = kind > 0 ? parcel.row->body(kind) : NULL;
    memset(parcel.object, 0, sizeof parcel.object);
    const uint32_t head[] = {(uint32_t)kind, host.coordinator.generation,
                             host.coordinator.sequence};
    if (kind > 0) memcpy(parcel.object, head, sizeof head);
    parcel.rest = (strait_view){rest, take_bytes(in, take(in), rest)};
    draw_fields(in, parcel.row->header, parcel.object, &memory);
    draw_fields(in, parcel.body, parcel.object, &memory);
    frame.type = parcel.row->type;
    frame.boundary = (uint16_t)(take(in) % 4);
    frame.microbatch = (uint16_t)(take(in) % 8);
    frame.step = take(in);
    if (parcel.row->uses_frame == 0 && take(in) % 8 != 0) parcel.rest.bytes = 0;
    if (parcel_pack(&parcel, &frame, &msg) != STRAIT_OK) return NULL;
    damage(in, msg);
    return msg;
}

static void try_message(struct input *in) {
    const int worker = (int)(take(in) % N_WORKERS);
    struct strait_msg *msg = draw_message(in);
    struct strait_msg *copy = NULL;
    if (msg == NULL) return;
    if (message_like(msg, msg->size, &copy) == STRAIT_OK) {
        memcpy(copy->body, msg->body, msg->size); // unpacking cleans texts in place
        (void)parse_message(host.pool, copy);
    }
    strait_msg_close(&copy);
    if (msg->type == STRAIT_MSG_CROSSING) cross(msg, take(in));
    deliver(worker, &msg);
    strait_msg_close(&msg);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct input in = {data, size};
    if (sides[0] == NULL) open_boundary();
    open_host();
    while (in.left > 0) {
        const unsigned move = take(&in);
        if (move < 128)
            try_message(&in);
        else if (move < 176)
            reply_all();
        else if (move < 208)
            command((int)move);
        else if (move < 240)
            join((int)move % N_WORKERS);
        else
            strait_host_feed_coordinator(&host, &(strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    close_host();
    for (int i = 0; i < 2; i++)
        strait_boundary_reset(sides[i], 0);
    return 0;
}
