/* Holds the layout of every command, reply and swarm message: a change without a new protocol
 * version fails here, and so does a table of docs/wire.md that no longer says what the code does.
 * Run with --print this program writes those tables. */
#include "base/digest/hash.h"
#include "check.h"
#include "fuzz/swarm_parsers.h"
#include "net/core/frame.h"
#include "wire_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After a change of the wire: raise STRAIT_FRAME_VERSION, then set both to what the test prints. */
enum {
    VERSION = 13
};
static const char digest[] = "88db9f119cd0cdff1ea99d8197104521";

enum {
    PAGE_BYTES = 1 << 16,
    ALL_BYTES = 1 << 16
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
    render(&strait_task_replica_layout, 0, "others", row, sizeof row);
    with("TASK", row);
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

static strait_err add(struct strait_msg *msg) {
    assert_true(n_all + 2 + msg->size <= sizeof all);
    all[n_all++] = msg->type;
    all[n_all++] = msg->flags;
    memcpy(all + n_all, msg->body, msg->size);
    n_all += msg->size;
    return STRAIT_OK;
}

static void changes_layout_only_with_the_version(void **state) {
    (void)state;
    char now[STRAIT_HASH_TEXT];
    CHECK_OK(strait_msg_pool_open(&pool));
    CHECK_OK(each_sample(pool, LARGE_VALUES, add));
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

static strait_err is_accepted(struct strait_msg *msg) {
    const strait_err err = parse_message(pool, msg);
    if (err != STRAIT_OK)
        fail_msg("a sample of type %d is rejected: %s; the fuzz target would not get past it",
                 msg->type, strait_err_detail());
    return STRAIT_OK;
}

/* What the fuzz target starts from (tests/fuzz/swarm_seeds.c). */
static void accepts_every_sample_with_small_values(void **state) {
    (void)state;
    CHECK_OK(strait_msg_pool_open(&pool));
    CHECK_OK(each_sample(pool, SMALL_VALUES, is_accepted));
    strait_msg_pool_close(&pool);
    CHECK_OK(parse_snapshot(snapshot_sample, sizeof snapshot_sample));
    char invite[STRAIT_INVITE_TEXT];
    CHECK_OK(invite_sample(invite));
    CHECK_OK(parse_invite((const unsigned char *)invite, strlen(invite)));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(documents_every_layout),
                                       cmocka_unit_test(changes_layout_only_with_the_version),
                                       cmocka_unit_test(accepts_every_sample_with_small_values)};
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        each_row(print_row);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
