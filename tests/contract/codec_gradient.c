/* codec_gradient.c - gradients of every codec, through a chain of stages. */
#include "codec/payload.h"
#include "codec_rig.h"

static struct chain chain;

static void forward(struct rig *rig, void *arg) {
    struct chain *c = arg;
    for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) // a parameter has changed
        CHECK_OK(strait_codec_refresh(chain_side(c, i), &rig->stream));
    chain_forward(c, 1);
}

static int is_differentiable(const strait_codec_spec *spec) {
    return spec->bits == 32 && spec->grad_bits == 32 && !spec->has_feedback;
}

/* Lists of the tokens' rows, as a stage gives them to codecs where it has them. */
static strait_tensor list_tokens(void) {
    struct rig *rig = chain.rig;
    const int64_t n_rows = chain.table.rows;
    const strait_tensor ids = rig_tokens(rig, CHAIN_ROWS, n_rows, 1);
    strait_tensor lists = rig_output(rig, 1, strait_token_list_cols(CHAIN_ROWS, n_rows));
    lists.dtype = STRAIT_I32;
    CHECK_OK(rig->k->table_ids(&rig->stream, ids, chain.tokens, n_rows));
    CHECK_OK(rig->k->token_tables->list(&rig->stream, lists, ids, n_rows));
    return lists;
}

/* Gradients of the input and of every parameter, with another microbatch in between. */
static void gradients_match_finite_differences(void **state) {
    (void)state;
    int n = 0;
    EACH_CASE(which) {
        const strait_codec_spec spec = case_spec(which, 0);
        if (!is_differentiable(&spec)) continue;
        chain_open(&chain, reference_rig(), which);
        if (!spec.can_defer) chain.lists = list_tokens();
        chain_shake(&chain);
        chain_forward(&chain, 1);
        chain_forward(&chain, 0);
        chain_backward(&chain, 1);
        const strait_tensor d_input = rig_output(chain.rig, CHAIN_ROWS, chain.cols);
        CHECK_OK(chain.rig->k->cast(&chain.rig->stream, d_input, chain.d));
        if (!spec.can_defer) chain_param_grads(&chain, 1);
        chain_backward(&chain, 0);
        if (spec.can_defer) chain_param_grads(&chain, 1);
        const gradient g = {chain.rig, forward, &chain, {chain.y}, {chain.v}};
        check_gradient(&g, chain.x[1][0], d_input, which->label);
        for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) {
            strait_param p;
            for (int j = 0; strait_codec_get_param(chain_side(&chain, i), j, &p) == STRAIT_OK; j++)
                check_gradient(&g, p.value, p.grad, p.name);
        }
        chain_close(&chain);
        n++;
    }
    CHECK(n >= 3);
}

/* The case at other bits, nearest both ways. */
static strait_codec_spec at_bits(const codec_case *which, int b, int bits, int grad_bits) {
    codec_case other = *which;
    other.spec.bits = bits;
    other.spec.grad_bits = grad_bits;
    other.spec.rounding = STRAIT_ROUND_NEAREST;
    return case_spec(&other, b);
}

static int has_log_scale(const strait_codec_spec *spec) {
    return strcmp(spec->variant, "context") == 0;
}

/* Whether exchange can read what this spec sends: a codec with a format of its own is left out. */
static int has_known_payload(const strait_codec_spec *spec) {
    return has_log_scale(spec) || strait_codec_wire_bytes(spec, STRAIT_FORWARD) ==
                                      strait_payload_bytes(spec->rows, spec->keep, spec->bits);
}

/* Replaces an exact code by what the coarse chain sent. */
static void exchange(struct chain *exact, int b) {
    const strait_tensor wire = exact->wire[b][STRAIT_FORWARD];
    const strait_tensor code = {wire.data, STRAIT_F32, CHAIN_ROWS, wire.cols / 4 / CHAIN_ROWS};
    const strait_tensor sent = chain.wire[b][STRAIT_FORWARD], absent = {0};
    struct strait_stream *stream = &exact->rig->stream;
    if (has_log_scale(&exact->spec[b]))
        CHECK_OK(
            exact->rig->k->log_scale->restore(stream, code, absent, sent, (strait_pack_params){0}));
    else
        CHECK_OK(exact->rig->k->restore_rows(stream, code, absent, sent,
                                             (strait_pack_params){.bits = 4}));
}

static void check_same(strait_tensor a, struct rig *other, strait_tensor b) {
    unsigned char *left = read_bytes(chain.rig, a), *right = read_bytes(other, b);
    assert_memory_equal(left, right, strait_tensor_bytes(a));
    free(left);
    free(right);
}

/* Rounding counts as the identity backward: a coarse codec has exactly the gradients of an exact
 * one that received the rounded codes. */
static void rounding_is_straight_through(void **state) {
    (void)state;
    int n = 0;
    EACH_CASE(which) {
        const strait_codec_spec spec = case_spec(which, 0);
        if (!is_differentiable(&spec) || !(strait_codec_traits(&spec) & STRAIT_CODEC_TRAINED))
            continue;
        struct chain exact;
        const strait_codec_spec coarse[2] = {at_bits(which, 0, 4, 32), at_bits(which, 1, 4, 32)};
        if (!has_known_payload(&coarse[0])) continue;
        const strait_codec_spec fine[2] = {at_bits(which, 0, 32, 32), at_bits(which, 1, 32, 32)};
        struct rig other;
        rig_open(&other, (strait_backend_spec){.name = "cpu", .n_threads = 1, .is_reference = 1});
        chain_open_specs(&chain, reference_rig(), coarse);
        chain_open_specs(&exact, &other, fine);
        exact.on_wire = exchange;
        chain_shake(&chain);
        chain_shake(&exact);
        chain_forward(&chain, 1);
        chain_forward(&exact, 1);
        check_same(chain.y, &other, exact.y);
        chain_backward(&chain, 1);
        chain_backward(&exact, 1);
        check_same(chain.d, &other, exact.d);
        chain_close(&chain);
        chain_close(&exact);
        rig_close(&other);
        n++;
    }
    CHECK(n >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(rounding_is_straight_through),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
