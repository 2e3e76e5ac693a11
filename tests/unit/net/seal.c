/* Sealed secrets: only the same key and label open them, and not after a change. */
#include "net/core/seal.h"

#include "check.h"

#include <string.h>

enum {
    BYTES = 16
};

static void opens_only_with_its_key_and_label(void **state) {
    (void)state;
    struct strait_identity *mine = NULL, *other = NULL;
    unsigned char sealed[2][BYTES + STRAIT_SEAL_BYTES], out[BYTES];
    const strait_seal_label label = {"token of run 1", 14}, wrong = {"token of run 2", 14};
    CHECK_OK(strait_identity_generate(&mine));
    CHECK_OK(strait_identity_generate(&other));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(strait_seal(mine, label, "sixteen secrets!", BYTES, sealed[i]));
        memset(out, 0, sizeof out);
        CHECK_OK(strait_unseal(mine, label, sealed[i], BYTES, out));
        assert_memory_equal(out, "sixteen secrets!", BYTES);
        for (size_t k = 0; k + 4 <= sizeof sealed[i]; k++)
            assert_memory_not_equal(sealed[i] + k, "secr", 4);
    }
    assert_memory_not_equal(sealed[0], sealed[1], sizeof sealed[0]); // nonces differ
    CHECK_FAILS(strait_unseal(other, label, sealed[0], BYTES, out), STRAIT_EAUTH, "another key");
    CHECK_FAILS(strait_unseal(mine, wrong, sealed[0], BYTES, out), STRAIT_EAUTH, "another key");
    for (size_t k = 0; k < sizeof sealed[0]; k++) {
        sealed[0][k] ^= 1;
        CHECK_FAILS(strait_unseal(mine, label, sealed[0], BYTES, out), STRAIT_EAUTH, "damaged");
        sealed[0][k] ^= 1;
    }
    CHECK_OK(strait_unseal(mine, label, sealed[0], BYTES, out));
    strait_identity_close(&mine);
    strait_identity_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens_only_with_its_key_and_label)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
