/* Holds the layout of every command, reply and swarm message: a change without a new protocol
 * version fails here, and so does a table of docs/wire.md that no longer says what the code does.
 * Run with --print this program writes those tables. */
#include "base/hash.h"
#include "check.h"
#include "net/core/frame.h"
#include "stage/boundary_check.h"
#include "stage/commands.h"
#include "swarm/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After a change of the wire: raise STRAIT_FRAME_VERSION, then set both to what the test prints. */
enum {
    VERSION = 2
};
static const char digest[] = "21724ccb76f6234b7e17dbfeb2fa903f";

enum {
    PAGE_BYTES = 1 << 16,
    ALL_BYTES = 1 << 16,
    N_FLOATS = 2
};

static struct strait_msg_pool *pool;
static unsigned char all[ALL_BYTES]; // every sample, one after the other
static size_t n_all;

/* ---- rows of docs/wire.md ---- */

static const char *short_name(const strait_layout *layout, const char *name) {
    const size_t n = strlen(layout->name);
    if (strncmp(name, layout->name, n) == 0 && name[n] == '.') return name + n + 1;
    return strncmp(name, "neighbours.", 11) == 0 ? name + 11 : name;
}

static void render(const strait_layout *layout, int kind, const char *kind_name, char *out,
                   size_t capacity) {
    size_t n = 0;
    if (kind > 0) n += (size_t)snprintf(out, capacity, "| %d ", kind);
    n += (size_t)snprintf(out + n, capacity - n, "| %s |", kind_name);
    for (int i = 0; i < layout->n_fields; i++) {
        const strait_field *f = &layout->fields[i];
        const int is_array = f->type == STRAIT_FIELD_BYTES || f->type == STRAIT_FIELD_NAME;
        n += (size_t)snprintf(out + n, capacity - n, "%s `%s` %s", i > 0 ? "," : "",
                              short_name(layout, f->name), strait_field_type_name(f->type));
        if (is_array) n += (size_t)snprintf(out + n, capacity - n, "[%zu]", f->size);
    }
    (void)snprintf(out + n, capacity - n, "%s |", layout->n_fields == 0 ? " nothing" : "");
}

typedef void row_fn(const char *table, const char *row);

static void each_row(row_fn *with) {
    char row[4096];
    render(&strait_boundary_check_layout, 0, "boundary_check", row, sizeof row);
    with("BOUNDARY_CHECK", row);
    render(&strait_stage_command_header, 0, "every command", row, sizeof row);
    with("COMMAND", row);
    for (int k = 1; k < STRAIT_COMMAND_KINDS; k++) {
        const strait_layout *layout = strait_stage_command_layout((strait_stage_command_kind)k);
        render(layout, k, layout->name, row, sizeof row);
        with("COMMAND", row);
    }
    render(&strait_stage_reply_header, 0, "every reply", row, sizeof row);
    with("REPLY", row);
    for (int k = 1; k < STRAIT_COMMAND_KINDS; k++) {
        const strait_layout *layout = strait_stage_reply_layout((strait_stage_command_kind)k);
        if (layout->n_fields == 0) continue;
        render(layout, k, layout->name, row, sizeof row);
        with("REPLY", row);
    }
    for (int i = 0; strait_swarm_layout(i) != NULL; i++) {
        render(strait_swarm_layout(i), 0, strait_swarm_layout(i)->name, row, sizeof row);
        with("SWARM", row);
    }
    for (int k = 1; k < STRAIT_TASK_KINDS; k++) {
        const strait_layout *layout = strait_task_layout((strait_task_kind)k);
        render(layout, k, layout->name, row, sizeof row);
        with("TASK", row);
    }
    for (int k = 1; k < STRAIT_TASK_KINDS; k++) {
        const strait_layout *layout = strait_task_reply_layout((strait_task_kind)k);
        if (layout->n_fields == 0) continue;
        render(layout, k, layout->name, row, sizeof row);
        with("TASK_REPLY", row);
    }
}

static char page[PAGE_BYTES];

static void is_documented(const char *table, const char *row) {
    if (strstr(page, row) != NULL) return;
    fail_msg("docs/wire.md, table %s lacks this row: %s", table, row);
}

static void documents_every_layout(void **state) {
    (void)state;
    FILE *file = fopen(WIRE_PAGE, "rb");
    assert_non_null(file);
    const size_t n = fread(page, 1, sizeof page - 1, file);
    (void)fclose(file);
    assert_in_range(n, 1, sizeof page - 2);
    each_row(is_documented);
}

static void print_row(const char *table, const char *row) {
    static const char *last = "";
    if (strcmp(last, table) != 0) printf("\n%s\n", table);
    last = table;
    puts(row);
}

/* ---- samples ---- */

/* Fills every field with a value of its own. */
static void fill(const strait_layout *layout, void *object) {
    static const float floats[N_FLOATS] = {1.5f, -2.25f};
    for (int i = 0; i < layout->n_fields; i++) {
        const strait_field *f = &layout->fields[i];
        unsigned char *at = (unsigned char *)object + f->offset;
        const int value = 0x01020300 + i;
        switch (f->type) {
        case STRAIT_FIELD_FLAG: *(int *)at = i % 2; break;
        case STRAIT_FIELD_INT:
        case STRAIT_FIELD_U32: memcpy(at, &value, 4); break;
        case STRAIT_FIELD_U64:
        case STRAIT_FIELD_I64: *(int64_t *)at = ((int64_t)value << 31) + i; break;
        case STRAIT_FIELD_F32: *(float *)at = 0.5f * (float)(i + 1); break;
        case STRAIT_FIELD_F64: *(double *)at = 0.25 * (i + 1); break;
        case STRAIT_FIELD_BYTES: memset(at, i + 1, f->size); break;
        case STRAIT_FIELD_NAME: (void)snprintf((char *)at, f->size, "name %d", i); break;
        case STRAIT_FIELD_TEXT:
        case STRAIT_FIELD_REASON: *(const char **)at = "a text"; break;
        case STRAIT_FIELD_FLOATS: *(strait_floats *)at = (strait_floats){floats, N_FLOATS}; break;
        case STRAIT_FIELD_REST:
            *(strait_view *)at = (strait_view){(const unsigned char *)"rest", 4};
            break;
        }
    }
}

static void add(struct strait_msg **msg) {
    assert_true(n_all + 2 + (*msg)->size <= sizeof all);
    all[n_all++] = (*msg)->type;
    all[n_all++] = (*msg)->flags;
    memcpy(all + n_all, (*msg)->body, (*msg)->size);
    n_all += (*msg)->size;
    strait_msg_close(msg);
}

static void add_stage_samples(void) {
    for (int k = 1; k < STRAIT_COMMAND_KINDS; k++) {
        const strait_stage_command_kind kind = (strait_stage_command_kind)k;
        struct strait_msg *msg = NULL;
        strait_stage_command command = {0};
        strait_stage_reply reply = {0};
        fill(&strait_stage_command_header, &command);
        fill(strait_stage_command_layout(kind), &command);
        command.kind = kind;
        CHECK_OK(strait_stage_command_pack(pool, &command, &msg));
        add(&msg);
        fill(&strait_stage_reply_header, &reply);
        fill(strait_stage_reply_layout(kind), &reply);
        reply.kind = kind;
        CHECK_OK(strait_stage_reply_pack(pool, &reply, &msg));
        add(&msg);
    }
}

static void add_task_samples(void) {
    const strait_layout *header = NULL;
    const strait_layout *reply_header = NULL;
    for (int i = 0; strait_swarm_layout(i) != NULL; i++) {
        if (strcmp(strait_swarm_layout(i)->name, "task") == 0) header = strait_swarm_layout(i);
        if (strcmp(strait_swarm_layout(i)->name, "task_reply") == 0)
            reply_header = strait_swarm_layout(i);
    }
    for (int k = 1; k < STRAIT_TASK_KINDS; k++) {
        const strait_task_kind kind = (strait_task_kind)k;
        struct strait_msg *msg = NULL;
        strait_task task = {0};
        strait_task_reply reply = {0};
        fill(header, &task);
        fill(strait_task_layout(kind), &task);
        task.kind = kind;
        CHECK_OK(strait_task_pack(pool, &task, &msg));
        add(&msg);
        fill(reply_header, &reply);
        fill(strait_task_reply_layout(kind), &reply);
        reply.kind = kind;
        CHECK_OK(strait_task_reply_pack(pool, &reply, &msg));
        add(&msg);
    }
}

static void add_swarm_samples(void) {
    static const int32_t tokens[] = {1, 65535, 7};
    struct strait_msg *msg = NULL;
    strait_join join = {0};
    strait_heartbeat heartbeat = {0};
    strait_want want = {0};
    strait_boundary_check check = {0};
    fill(&strait_boundary_check_layout, &check);
    CHECK_OK(strait_boundary_check_pack(pool, &check, &msg));
    add(&msg);
    fill(strait_swarm_layout(0), &join);
    CHECK_OK(strait_join_pack(pool, &join, &msg));
    add(&msg);
    fill(strait_swarm_layout(1), &heartbeat);
    CHECK_OK(strait_heartbeat_pack(pool, &heartbeat, &msg));
    add(&msg);
    fill(strait_swarm_layout(3), &want);
    CHECK_OK(strait_want_pack(pool, &want, &msg));
    add(&msg);
    const strait_piece piece = {1, 2, 3, 1, 4, 9, (const unsigned char *)"piece", 5};
    CHECK_OK(strait_piece_pack(pool, &piece, &msg));
    add(&msg);
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        const strait_batch_ids ids = {5, 6, is_wide, tokens, is_wide ? tokens : NULL, 3, is_wide};
        CHECK_OK(strait_batch_ids_pack(pool, &ids, &msg));
        add(&msg);
    }
}

static void changes_layout_only_with_the_version(void **state) {
    (void)state;
    char now[STRAIT_HASH_TEXT];
    CHECK_OK(strait_msg_pool_open(&pool));
    add_stage_samples();
    add_task_samples();
    add_swarm_samples();
    strait_msg_pool_close(&pool);
    strait_hash_text(all, n_all, now);
    if (strcmp(now, digest) != 0 && (int)STRAIT_FRAME_VERSION == (int)VERSION)
        fail_msg("the layout of a message changed: raise STRAIT_FRAME_VERSION (net/core/frame.h), "
                 "update docs/wire.md (this program with --print writes the tables), then set "
                 "VERSION to %d and digest to \"%s\" in this file",
                 VERSION + 1, now);
    if (strcmp(now, digest) != 0 || (int)STRAIT_FRAME_VERSION != (int)VERSION)
        fail_msg("the protocol version changed: set VERSION to %d and digest to \"%s\" in this "
                 "file",
                 STRAIT_FRAME_VERSION, now);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_every_layout),
                                       cmocka_unit_test(changes_layout_only_with_the_version)};
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        each_row(print_row);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
