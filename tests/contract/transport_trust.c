/* transport_trust.c - which peers every transport refuses, that both sides learn the reason, and
 * that any allocation may fail. */
#include "base/alloc.h"
#include "contract/transport/mpi_fixture.h"
#include "contract/transport/transport_fixture.h"

static void refuses_an_unknown_key(void **state) {
    (void)state;
    r.b.trusted = strait_identity_fingerprint(r.b.identity); // not a's
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_b_refused, 60000));
    CHECK(r.a.n_opened == 0 && r.b.n_opened == 0 && r.a.n_closed == 1);
    CHECK(r.a.why == STRAIT_EAUTH && r.b.why_refused == STRAIT_EAUTH);
    CHECK(strstr(r.a.reason, "): refused by peer: this key is not on the list") != NULL);
    CHECK(strstr(r.b.reason_refused, "): this key is not on the list") != NULL);
}

static void refuses_a_key_other_than_the_dialled_one(void **state) {
    (void)state;
    rig_start(&r);
    struct strait_link *link = NULL;
    const strait_dial_params params = {.expected = strait_identity_fingerprint(r.a.identity)};
    CHECK_OK(strait_transport_dial(r.a.t, r.b.address, params, &link));
    CHECK(rig_drive(&r, rig_a_closed, 60000));
    rig_rest(&r, 100);
    CHECK(r.a.n_opened == 0 && r.a.why == STRAIT_EAUTH);
    CHECK(strstr(r.a.reason, "answered where") != NULL);
    const char *reason = r.b.n_refused > 0 ? r.b.reason_refused : r.b.reason;
    CHECK(strstr(reason, "answered where") != NULL);
}

static void refuses_a_peer_of_another_run(void **state) {
    (void)state;
    r.are_apart = 1;
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_a_closed, 60000));
    rig_rest(&r, 100);
    CHECK(r.a.n_opened == 0 && r.b.n_opened == 0);
    CHECK(r.a.why == STRAIT_EAUTH && r.b.why_refused == STRAIT_EAUTH);
    CHECK(strstr(r.a.reason, "belongs to run 01020304050000000000000000000") != NULL);
    CHECK(strstr(r.b.reason_refused, "belongs to run 0102030405") != NULL);
}

static int is_settled(const struct rig *x) {
    return x->b.n_got > 0 || x->a.n_closed > 0 || x->b.n_closed > 0 || x->b.n_refused > 0;
}

static void send_first_message(struct rig_node *node) {
    struct strait_msg *msg = NULL;
    if (strait_msg_open(node->t->config.pool, 20, 300000, &msg) != STRAIT_OK) return;
    memset(msg->body, 7, msg->size);
    (void)strait_link_send(node->link, &msg);
    strait_msg_close(&msg);
}

/* Whichever allocation fails, both sides close and free everything; sanitizers check for leaks.
 * What was lost with an allocation is noticed by a timeout, so it is short; a busy machine needs
 * longer ones for the last attempts, in which nothing fails. */
static void survives_failure_of_any_allocation(void **state) {
    int is_complete = 0;
    for (int n = 1; !is_complete; n++) {
        CHECK(n < 200);
        if (n > 1) rig_open(&r, *state);
        const int ms = n < 50 ? 150 : 10000;
        r.config.handshake_ms = ms;
        r.config.peer_timeout_ms = ms;
        r.config.ping_ms = 20;
        r.config.linger_ms = 50;
        r.a.on_open = send_first_message;
        rig_start(&r);
        strait_alloc_fail_at(n);
        const strait_dial_params params = {.expected = strait_identity_fingerprint(r.b.identity)};
        struct strait_link *link = NULL;
        if (strait_transport_dial(r.a.t, r.b.address, params, &link) == STRAIT_OK)
            (void)rig_drive(&r, is_settled, 7 * ms);
        is_complete = r.b.n_got > 0 && r.a.n_closed == 0;
        strait_alloc_fail_at(0);
        rig_close(&r);
    }
    rig_open(&r, *state); // for tear_down
}

#define ALL(scheme)                                                                           \
    ON(scheme, refuses_an_unknown_key), ON(scheme, refuses_a_key_other_than_the_dialled_one), \
        ON(scheme, refuses_a_peer_of_another_run), ON(scheme, survives_failure_of_any_allocation)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {ALL("inproc"), ALL("tls")};
    const struct CMUnitTest mpi_tests[] = {ALL("mpi")};
    (void)argv;
    if (argc > 1) return cmocka_run_group_tests(mpi_tests, join_mpi, leave_mpi); // under mpirun
    return cmocka_run_group_tests(tests, NULL, NULL);
}
