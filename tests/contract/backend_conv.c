/* Convolutions, windows of rows and ranges of columns: compared with the reference loops, with
 * central differences, and with results computed by hand. */
#include "rig.h"

/* rows: sequences times `inner` tokens; variant: taps */
static void run_conv(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows * s.inner, s.cols, 1);
    const strait_tensor w = rig_input(rig, s.variant, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, x.rows, x.cols);
    CHECK_OK(rig->k->conv->forward(&rig->stream, y, x, w, s.inner));
    rig_keep(rig, y);
    const strait_tensor d_y = rig_act(rig, x.rows, x.cols, 3);
    const strait_tensor d_x = rig_act_output(rig, x.rows, x.cols);
    const strait_tensor d_w = rig_input(rig, s.variant, s.cols, 4);
    CHECK_OK(rig->k->conv->back(&rig->stream, d_x, d_w, d_y, x, w, s.inner));
    rig_keep(rig, d_x);
    rig_keep(rig, d_w);
}

static const int64_t counts[] = {1, 2, 7}, lengths[] = {1, 2, 3, 5, 31}, widths[] = {1, 8, 133};

static void over_sequences(rig_case run, int least, int most, double tolerance) {
    for (size_t n = 0; n < COUNT(counts); n++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (size_t c = 0; c < COUNT(widths); c++)
                for (int variant = least; variant <= most; variant++)
                    check_one_of_many(run,
                                      (shape){.rows = counts[n],
                                              .inner = lengths[l],
                                              .cols = widths[c],
                                              .variant = variant},
                                      tolerance);
}

static void matches_reference_convolution(void **state) {
    (void)state;
    over_sequences(run_conv, 1, STRAIT_CONV_TAPS, 1e-5);
    /* More rows than a device has shares of, and shares that begin inside a sequence. */
    check_case(run_conv, (shape){.rows = 3, .inner = 705, .cols = 24, .variant = 4}, 1e-5);
}

/* Two sequences, `inner` tokens of each in a call from position `rows` on; a row of none between
 * them. variant: taps. */
static void run_cached(struct rig *rig, shape s) {
    const int32_t n = (int32_t)s.inner, n_rows = 2 * n + 1;
    int32_t sequences[64], positions[64];
    for (int32_t i = 0; i < n_rows; i++) {
        sequences[i] = i < n ? 1 : i == n ? -1 : 0;
        positions[i] = (int32_t)s.rows + (i <= n ? i : i - n - 1);
    }
    const strait_tensor ring = rig_act(rig, (int64_t)2 * STRAIT_CONV_RING, s.cols, 1);
    const strait_tensor x = rig_act(rig, n_rows, s.cols, 2), y = rig_act(rig, n_rows, s.cols, 3);
    const strait_tensor w = rig_input(rig, s.variant, s.cols, 4);
    const strait_cached_rows at = {rig_ints(rig, n_rows, sequences),
                                   rig_ints(rig, n_rows, positions)};
    CHECK_OK(rig->k->conv->cached(&rig->stream, y, ring, x, w, at));
    rig_keep(rig, y);
    rig_keep(rig, ring);
}

static void matches_reference_with_cache(void **state) {
    (void)state;
    static const int64_t first[] = {0, 1, 2, 61, 64, 200};
    for (size_t f = 0; f < COUNT(first); f++)
        for (int64_t n = 1; n <= 31; n += 10)
            for (size_t c = 0; c < COUNT(widths); c++)
                check_one_of_many(
                    run_cached,
                    (shape){.rows = first[f], .inner = n, .cols = widths[c], .variant = 4}, 1e-5);
}

/* A sequence that is fed in pieces gives the rows of the whole one. */
static void check_pieces(void) {
    enum {
        LENGTH = 100,
        COLS = 5
    };
    struct rig *rig = rig_under_test();
    const strait_tensor x = rig_input(rig, LENGTH, COLS, 1), w = rig_input(rig, 4, COLS, 2);
    const strait_tensor whole = rig_output(rig, LENGTH, COLS), y = rig_output(rig, LENGTH, COLS);
    const strait_tensor ring = rig_output(rig, STRAIT_CONV_RING, COLS); // never read before written
    int32_t zeros[LENGTH] = {0}, numbers[LENGTH];
    for (int32_t i = 0; i < LENGTH; i++)
        numbers[i] = i;
    const strait_tensor sequences = rig_ints(rig, LENGTH, zeros);
    const strait_tensor positions = rig_ints(rig, LENGTH, numbers);
    CHECK_OK(rig->k->conv->forward(&rig->stream, whole, x, w, LENGTH));
    for (int64_t i = 0, n = 1; i < LENGTH; i += n, n = n * 3 % 59 + 1) {
        if (n > LENGTH - i) n = LENGTH - i;
        const strait_cached_rows at = {strait_tensor_rows(sequences, i, n),
                                       strait_tensor_rows(positions, i, n)};
        CHECK_OK(rig->k->conv->cached(&rig->stream, strait_tensor_rows(y, i, n), ring,
                                      strait_tensor_rows(x, i, n), w, at));
    }
    rig_keep(rig, whole);
    rig_keep(rig, y);
    for (int64_t i = 0; i < LENGTH * COLS; i++)
        CHECK_NEAR(rig->kept[i], rig->kept[LENGTH * COLS + i], 1e-5);
}

static void pieces_equal_the_whole_sequence(void **state) {
    (void)state;
    on_every_device(check_pieces);
}

/* variant: how many rows a window has */
static void run_window(struct rig *rig, shape s) {
    const strait_tensor x = rig_input(rig, s.rows * s.inner, s.cols, 1);
    const strait_tensor y = rig_output(rig, x.rows, x.cols * s.variant);
    CHECK_OK(rig->k->autoencoder->window(&rig->stream, y, x, s.inner));
    rig_keep(rig, y);
    const strait_tensor d_x = rig_output(rig, x.rows, x.cols);
    CHECK_OK(rig->k->autoencoder->window_back(&rig->stream, d_x, y, s.inner));
    rig_keep(rig, d_x);
}

static void matches_reference_window(void **state) {
    (void)state;
    over_sequences(run_window, 1, 5, 1e-6);
}

static void run_row(struct rig *rig, shape s) {
    const strait_tensor y = rig_act(rig, s.rows, s.cols, 1), row = rig_input(rig, 1, s.cols, 2);
    const strait_tensor d_row = rig_input(rig, 1, s.cols, 3);
    CHECK_OK(rig->k->add_row_back(&rig->stream, d_row, y));
    CHECK_OK(rig->k->add_row(&rig->stream, y, row));
    rig_keep(rig, y);
    rig_keep(rig, d_row);
}

static void matches_reference_row(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 3, 129, 2500}; // the last: several rows per share
    for (size_t r = 0; r < COUNT(rows); r++)
        for (size_t c = 0; c < COUNT(widths); c++)
            check_one_of_many(run_row, (shape){.rows = rows[r], .cols = widths[c]}, 1e-5);
}

/* inner: the first column of the piece */
static void run_cols(struct rig *rig, shape s) {
    const int64_t broad = s.cols + s.inner + s.variant;
    const strait_tensor y = rig_act(rig, s.rows, broad, 1), x = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor piece = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->add_cols(&rig->stream, y, x, s.inner));
    CHECK_OK(rig->k->cut_cols(&rig->stream, piece, y, s.inner));
    rig_keep(rig, y);
    rig_keep(rig, piece);
}

static void matches_reference_columns(void **state) {
    (void)state;
    static const int64_t firsts[] = {0, 3, 16};
    for (size_t f = 0; f < COUNT(firsts); f++)
        for (size_t c = 0; c < COUNT(widths); c++)
            for (int next = 0; next < 9; next += 8)
                check_one_of_many(
                    run_cols,
                    (shape){.rows = 17, .cols = widths[c], .inner = firsts[f], .variant = next},
                    1e-6);
}

/* Small numbers that a reader can check: every row reads itself and up to two rows before it. */
static void check_conv_formula(void) {
    struct rig *rig = rig_under_test();
    const float x[] = {1, 10, 100, 1000, 2, 20}, w[] = {0.5f, 3, -1};
    const float expected[] = {1.5f, 15 + 3, 150 + 30 - 1, 1500, 3 + 3000, 30 + 6 - 1000};
    float got[6];
    const strait_tensor y = rig_output(rig, 6, 1);
    CHECK_OK(rig->k->conv->forward(&rig->stream, y, rig_values(rig, 6, 1, x),
                                   rig_values(rig, 3, 1, w), 3));
    rig_read(rig, y, got);
    for (int i = 0; i < 6; i++)
        CHECK_NEAR((double)got[i], (double)expected[i], 1e-4);
}

struct conv_call {
    strait_tensor y, x, w;
    int64_t seq_len;
};

static void forward_conv(struct rig *rig, void *arg) {
    const struct conv_call *c = arg;
    CHECK_OK(rig->k->conv->forward(&rig->stream, c->y, c->x, c->w, c->seq_len));
}

static void forward_window(struct rig *rig, void *arg) {
    const struct conv_call *c = arg;
    CHECK_OK(rig->k->autoencoder->window(&rig->stream, c->y, c->x, c->seq_len));
}

static void check_gradients(void) {
    struct rig *rig = rig_under_test();
    struct conv_call c = {.y = rig_output(rig, 12, 5),
                          .x = rig_input(rig, 12, 5, 1),
                          .w = rig_input(rig, 4, 5, 2),
                          .seq_len = 6};
    gradient g = {rig, forward_conv, &c, {c.y}, {rig_input(rig, 12, 5, 3)}};
    const strait_tensor d_x = rig_output(rig, 12, 5), d_w = rig_output(rig, 4, 5);
    CHECK_OK(rig->k->fill(&rig->stream, d_w, 0));
    CHECK_OK(rig->k->conv->back(&rig->stream, d_x, d_w, g.d_outputs[0], c.x, c.w, c.seq_len));
    check_gradient(&g, c.x, d_x, "conv x");
    check_gradient(&g, c.w, d_w, "conv w");
    c.y = rig_output(rig, 12, 20);
    g = (gradient){rig, forward_window, &c, {c.y}, {rig_input(rig, 12, 20, 4)}};
    CHECK_OK(rig->k->autoencoder->window_back(&rig->stream, d_x, g.d_outputs[0], c.seq_len));
    check_gradient(&g, c.x, d_x, "window x");
}

static void convolves_by_formula(void **state) {
    (void)state;
    on_every_device(check_conv_formula);
}

static void gradients_match_central_differences(void **state) {
    (void)state;
    on_every_device(check_gradients);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_convolution),
        cmocka_unit_test(matches_reference_with_cache),
        cmocka_unit_test(pieces_equal_the_whole_sequence),
        cmocka_unit_test(matches_reference_window),
        cmocka_unit_test(matches_reference_row),
        cmocka_unit_test(matches_reference_columns),
        cmocka_unit_test(convolves_by_formula),
        cmocka_unit_test(gradients_match_central_differences),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
