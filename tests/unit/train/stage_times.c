/* Times of the parts of a run, measured on this machine. */
#include "train/outlook/stage_times.h"

#include "check.h"

static const char text[] =
    "model: {width: 64, layers: 4, heads: 2, ffn: 96, context: 64, vocab: 64,\n"
    "        anchors: true, local_every: 2}\n"
    "train: {batch_tokens: 1024}\n"
    "stages: {count: 2, microbatch: 4}\n"
    "link: {codec: {name: strait, ratio: 8, gate_width: 8}}\n"
    "device: {precision: bf16}\n";
static strait_run run;
static strait_run_plan plan;
static strait_stage_times times;

static void measure(const char *set) {
    CHECK_OK(strait_run_init_text("r.yaml", text, sizeof text - 1, &set, set != NULL, &run));
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    CHECK_OK(strait_stage_times_measure(&run, &plan, &times));
    CHECK(times.block.forward_s > 0.0 && times.codec_s > 0.0);
}

/* A crossing has 256 rows and the token table 64: the gates of all its rows are computed at once.
 */
static void crossings_may_have_more_rows_than_the_token_table(void **state) {
    (void)state;
    measure(NULL);
    CHECK(plan.codec.rows == 256 && plan.codec.vocab == 64 && plan.codec.gate_width == 8);
}

static void tables_may_have_fewer_rows_than_there_are_tokens(void **state) {
    (void)state;
    measure("model.table_rows=16");
    CHECK(plan.codec.table_rows == 16);
}

/* Gates of this width cost many times all else that crosses. Without them no measurement would be
 * much longer; on a busy machine one of a few is not. */
static void gates_of_a_table_are_part_of_the_time(void **state) {
    (void)state;
    int is_longer = 0;
    for (int i = 0; i < 20 && !is_longer; i++) {
        measure(NULL);
        const double narrow_s = times.codec_s;
        measure("link.codec.gate_width=8192");
        is_longer = times.codec_s > 3.0 * narrow_s;
    }
    CHECK(is_longer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossings_may_have_more_rows_than_the_token_table),
        cmocka_unit_test(tables_may_have_fewer_rows_than_there_are_tokens),
        cmocka_unit_test(gates_of_a_table_are_part_of_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
