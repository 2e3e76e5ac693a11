/* transport_trust.c - whom every transport turns away, and that both sides are told why. */
#include "contract/transport_rig.h"

static struct rig r;

static int set_up(void **state) {
    rig_open(&r, *state);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rig_close(&r);
    return 0;
}

static void test_unknown_key(void **state) {
    (void)state;
    r.b.trusted = strait_identity_fingerprint(r.b.identity); // not a's
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_b_refused, 10000));
    CHECK(r.a.n_opened == 0 && r.b.n_opened == 0 && r.a.n_closed == 1);
    CHECK(r.a.why == STRAIT_EAUTH && r.b.why_refused == STRAIT_EAUTH);
    CHECK(strcmp(r.a.words, "refused by peer: this key is not on the list") == 0);
    CHECK(strcmp(r.b.words_refused, "this key is not on the list") == 0);
}

static void test_other_key_answers(void **state) {
    (void)state;
    rig_start(&r);
    struct strait_link *link = NULL;
    const strait_dial_how how = {.expected = strait_identity_fingerprint(r.a.identity)};
    CHECK_OK(strait_transport_dial(r.a.t, r.b.address, how, &link));
    CHECK(rig_drive(&r, rig_a_closed, 10000));
    rig_rest(&r, 100);
    CHECK(r.a.n_opened == 0 && r.a.why == STRAIT_EAUTH);
    CHECK(strstr(r.a.words, "answered where") != NULL);
    const char *told = r.b.n_refused > 0 ? r.b.words_refused : r.b.words;
    CHECK(strstr(told, "answered where") != NULL);
}

static void test_other_run(void **state) {
    (void)state;
    r.are_apart = 1;
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_a_closed, 10000));
    rig_rest(&r, 100);
    CHECK(r.a.n_opened == 0 && r.b.n_opened == 0);
    CHECK(r.a.why == STRAIT_EAUTH && r.b.why_refused == STRAIT_EAUTH);
    CHECK(strstr(r.a.words, "belongs to run 01020304050000000000000000000") != NULL);
    CHECK(strstr(r.b.words_refused, "belongs to run 0102030405") != NULL);
}

#define ALL(scheme) \
    ON(scheme, test_unknown_key), ON(scheme, test_other_key_answers), ON(scheme, test_other_run)

int main(void) {
    const struct CMUnitTest tests[] = {ALL("inproc"), ALL("tls")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
