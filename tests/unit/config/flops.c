/* FLOPs of a run, computed by hand: the model, its codecs and the bottleneck ends beside a
 * boundary. */
#include "config/flops.h"

#include "check.h"

#include <stdio.h>

enum {
    WIDTH = 32,
    VOCAB = 64
};

static strait_run_plan plan;

/* Three stages with a codec, or one stage where `codec` is NULL. */
static void make(const char *codec, const char *variant) {
    static const char text[] =
        "model: {width: 32, layers: 3, heads: 2, ffn: 48, context: 16, vocab: 64}\n"
        "train: {batch_tokens: 512}\n"
        "link: {codec: {keep: 8, hidden: 24, encoder: 10, anchors: 5, context: 2, rank: 4}}\n";
    strait_run run;
    char sets[3][64] = {"stages.count=3"};
    (void)snprintf(sets[1], sizeof sets[1], "link.codec.name=%s", codec != NULL ? codec : "none");
    (void)snprintf(sets[2], sizeof sets[2], "link.codec.variant=%s", variant);
    const char *all[] = {sets[0], sets[1], sets[2]};
    CHECK_OK(
        strait_run_init_text("r.yaml", text, sizeof text - 1, all, codec != NULL ? 3 : 0, &run));
    CHECK_OK(strait_run_plan_init(&run, VOCAB, &plan));
}

/* Expects the FLOPs per trained token beyond the model's, and the FLOPs of a crossing. */
static void expect(const char *codec, const char *variant, double extra, double crossing) {
    double all = 0, one = -1;
    make(codec, variant);
    CHECK_OK(strait_flops_train(&plan, &all));
    CHECK_OK(strait_flops_crossing(&plan, &one));
    CHECK_NEAR(all - strait_shape_train_flops(&plan.shape), extra, 1e-6);
    CHECK_NEAR(one, crossing, 1e-6);
}

static void counts_the_model(void **state) {
    (void)state;
    make(NULL, "");
    double all = 0;
    CHECK_OK(strait_flops_train(&plan, &all));
    /* Queries, keys, values and output; gate, up and down; scores and mixing of half the context.
     */
    const double block = 4.0 * WIDTH * WIDTH + 3.0 * 48 * WIDTH + 16.0 * WIDTH;
    CHECK_NEAR(all, 6 * (3 * block + VOCAB * WIDTH), 1e-6);
    expect("none", "", 0, 0);
    expect("int8", "", 0, 0);
    expect("topk", "", 0, 0);
}

static void counts_trained_codecs(void **state) {
    (void)state;
    const double resbm = 24 * WIDTH + 8 * 24 + 24 * 8 + WIDTH * 24; // W1 and W2 of both sides
    expect("resbm", "a", 2 * 6 * resbm, 2 * resbm);
    const double strait = 8 * WIDTH + WIDTH * 8 + 24 * 8 + WIDTH * 24 + WIDTH * 5; // E; D V W P
    expect("strait", "tied", 2 * 6 * strait, 2 * strait);
    const double sender = 8 * WIDTH + 10 * WIDTH + 8 * 10;           // E A B
    const double receiver = WIDTH * 2 * 8 + 24 * 2 * 8 + WIDTH * 24; // D V W, of two codes
    const double gates = 4 * 8 * WIDTH; // Ga Gb Ha Hb, of 8 units by the rule of its ratio
    expect("strait", "context", 6 * (2 * (sender + receiver + gates) + 8 * 8), // one M
           2 * (sender + receiver + gates));
}

static void counts_codecs_without_parameters(void **state) {
    (void)state;
    expect("subspace", "full", 2 * 10.0 * 8 * WIDTH, 6.0 * 8 * WIDTH);
    expect("lowrank", "", 2 * 12.0 * 4 * WIDTH, 6.0 * 4 * WIDTH);
    expect("resbm", "b", 2 * 6 * 2.0 * 8 * WIDTH,
           4.0 * 8 * WIDTH); // the bottleneck ends of the blocks
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_the_model),
        cmocka_unit_test(counts_trained_codecs),
        cmocka_unit_test(counts_codecs_without_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
