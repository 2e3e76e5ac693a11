/* Digests of what replicas give to the sum of gradients: of the giver, of who took it, and of an
 * auditor that computes everything alone. */
#include "reduction_rig.h"

/* An auditor computes all groups alone, in order, as one pipeline does. */
static void audit(struct strait_sums_hash **hash, strait_sums_work *out) {
    static struct side s;
    struct pair unused;
    pair_open(&unused);
    open_side(&s, &unused, 0);
    const strait_sums_hash_spec spec = {.groups = &groups,
                                        .params = s.params,
                                        .n_params = 2,
                                        .n_replicas = 2,
                                        .replica = -1,
                                        .losses = s.losses,
                                        .n_losses = LOSSES};
    CHECK_OK(strait_sums_hash_open(&spec, hash));
    s.sums.audited = *hash;
    s.sums.audited_owners = &owners;
    strait_gradient_sums_begin(&s.sums);
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < n_values; i++)
            s.grads[i] = value_of(g, i);
        for (int kind = 0; kind < 2; kind++) {
            CHECK_OK(strait_gradient_sums_add(&s.sums, &s.stream, kind, g));
            if (g + 1 < GROUPS) CHECK_OK(strait_gradient_sums_put_aside(&s.sums, &s.stream, kind));
        }
        s.losses[2 * g] = 10.0 * g;
        s.losses[2 * g + 1] = 10.0 * g + 1.0;
    }
    CHECK_OK(strait_sums_hash_end(*hash, &owners));
    *out = *strait_sums_hash_work(*hash);
    strait_sums_hash_close(hash);
    close_side(&s);
    pair_close(&unused);
}

/* Sums once with digests; with is_false, replica 1 gives another value than it should. */
static void sum_hashed(struct strait_sums_hash **hashes, int is_false) {
    struct pair pair;
    static struct side sides[2];
    pair_open(&pair);
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], &pair, i);
        const strait_sums_hash_spec spec = {.groups = &groups,
                                            .params = sides[i].params,
                                            .n_params = 2,
                                            .n_replicas = 2,
                                            .replica = i,
                                            .losses = sides[i].losses,
                                            .n_losses = LOSSES};
        CHECK_OK(strait_sums_hash_open(&spec, &hashes[i]));
        strait_reduction_hash(sides[i].reduction, hashes[i]);
        strait_reduction_begin(sides[i].reduction, 0, &owners);
        compute(&sides[i], i);
        if (is_false && i == 1) sides[i].grads[5] += 1.0f; // in the first chunk, of replica 0
        CHECK_OK(strait_reduction_complete(sides[i].reduction, &sides[i].stream));
    }
    exchange(&pair, sides);
    for (int i = 0; i < 2; i++)
        CHECK_OK(strait_reduction_finish(sides[i].reduction, &sides[i].stream));
    for (int i = 0; i < 2; i++)
        close_side(&sides[i]);
    pair_close(&pair);
}

static void giver_owner_and_auditor_have_the_same_digests(void **state) {
    (void)state;
    struct strait_sums_hash *hashes[2] = {NULL, NULL}, *auditor = NULL;
    strait_sums_work right;
    audit(&auditor, &right);
    for (int is_false = 0; is_false < 2; is_false++) {
        sum_hashed(hashes, is_false);
        const strait_sums_work *a = strait_sums_hash_work(hashes[0]);
        const strait_sums_work *b = strait_sums_hash_work(hashes[1]);
        for (int o = 0; o < 2; o++) {
            CHECK(strait_digest_equal(&a->totals[o], &b->totals[o]));
            CHECK(strait_digest_equal(&a->given[0][o], &right.given[0][o]));
            CHECK(strait_digest_equal(&b->given[1][o], &right.given[1][o]) ==
                  !(is_false && o == 0));
            CHECK(strait_digest_equal(&a->totals[o], &right.totals[o]) == !(is_false && o == 0));
        }
        CHECK(strait_digest_equal(&a->given[1][0], &b->given[1][0])); // what one gave, one took
        CHECK(strait_digest_equal(&a->given[0][1], &b->given[0][1]));
        strait_sums_hash_close(&hashes[0]);
        strait_sums_hash_close(&hashes[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(giver_owner_and_auditor_have_the_same_digests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
