/* The ring that restores the order of messages, and the pool that frees what a burst left. */
#include "net/tls/reorder.h"

#include "base/alloc.h"
#include "pool_fixture.h"

static struct strait_reorder order;

static strait_err put(uint32_t sequence, size_t size, size_t limit) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(pool, STRAIT_MSG_FIRST, size, &msg));
    msg->sequence = sequence;
    const strait_err err = strait_reorder_put(&order, limit, &msg);
    CHECK((err == STRAIT_OK) == (msg == NULL));
    strait_msg_close(&msg);
    return err;
}

static void expect_next(uint32_t sequence) {
    struct strait_msg *msg = strait_reorder_take(&order, 0);
    CHECK(msg != NULL && msg->sequence == sequence);
    strait_msg_close(&msg);
}

static void returns_messages_in_order(void **state) {
    (void)state;
    order = (struct strait_reorder){.next = {UINT32_MAX - 1}}; // wraps in the middle
    const uint32_t first = UINT32_MAX - 1;
    CHECK_OK(put(first + 3, 10, 1000));
    CHECK_OK(put(first + 1, 10, 1000));
    CHECK(strait_reorder_take(&order, 0) == NULL);
    CHECK_OK(put(first, 10, 1000));
    expect_next(first);
    expect_next(first + 1);
    CHECK(strait_reorder_take(&order, 0) == NULL && order.n_bytes == 10);
    CHECK_OK(put(first + 2, 10, 1000));
    expect_next(first + 2);
    expect_next(first + 3);
    CHECK(order.n_bytes == 0);
}

static void declines_what_is_too_far_ahead_or_too_much(void **state) {
    (void)state;
    order = (struct strait_reorder){.n_bytes = 0};
    CHECK(put(STRAIT_REORDER_WINDOW, 0, 1000) == STRAIT_EAGAIN);
    CHECK_OK(put(STRAIT_REORDER_WINDOW - 1, 600, 1000));
    CHECK_OK(put(5, 600, 1000));
    CHECK(put(6, 1, 1000) == STRAIT_EAGAIN);
    CHECK_OK(put(0, 600, 1000)); // its turn: the others wait for it
    expect_next(0);
    strait_reorder_clear(&order);
    CHECK(order.n_bytes == 0 && strait_reorder_take(&order, 0) == NULL);
}

static void rejects_numbers_that_were_used_or_are_absurd(void **state) {
    (void)state;
    order = (struct strait_reorder){.next = {100}};
    CHECK(put(99, 0, 1000) == STRAIT_EPROTO);
    CHECK(put(101 + STRAIT_REORDER_MAX, 0, 1000) == STRAIT_EPROTO);
    CHECK_OK(put(101, 0, 1000));
    CHECK(put(101, 0, 1000) == STRAIT_EPROTO);
    strait_reorder_clear(&order);
}

static void open_and_close_many(int n) {
    struct strait_msg *all = NULL;
    for (int i = 0; i < n; i++) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_msg_open(pool, STRAIT_MSG_FIRST, 1000, &msg));
        msg->next = all;
        all = msg;
    }
    while (all != NULL) {
        struct strait_msg *msg = all;
        all = msg->next;
        strait_msg_close(&msg);
    }
}

/* What is needed again and again stays, so that steps do not allocate. */
static void trimming_frees_only_what_was_not_needed(void **state) {
    (void)state;
    const int64_t before = strait_alloc_live();
    open_and_close_many(100);
    strait_msg_pool_trim(pool);
    CHECK(strait_alloc_live() == before + 100); // all were needed since the beginning
    open_and_close_many(3);
    strait_msg_pool_trim(pool);
    CHECK(strait_alloc_live() == before + 3);
    const int64_t made = strait_alloc_count();
    open_and_close_many(3);
    CHECK(strait_alloc_count() == made);
    strait_msg_pool_trim(pool);
    strait_msg_pool_trim(pool);
    CHECK(strait_alloc_live() == before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(returns_messages_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(declines_what_is_too_far_ahead_or_too_much, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(rejects_numbers_that_were_used_or_are_absurd, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(trimming_frees_only_what_was_not_needed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
