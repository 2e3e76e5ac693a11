/* Numbers and texts as bytes, and what is too short for them. */
#include "base/bytes.h"

#include "check.h"

static void preserves_bits_of_numbers(void **state) {
    (void)state;
    unsigned char capacity[12];
    strait_writer w = {capacity, sizeof capacity, 0};
    strait_writer_float(&w, -1.5f);
    strait_writer_real(&w, 0x1.8p-1030);
    assert_false(w.is_short);
    assert_int_equal(w.left, 0);
    const unsigned char first[] = {0, 0, 0xc0, 0xbf};
    assert_memory_equal(capacity, first, sizeof first);
    strait_reader r = {capacity, sizeof capacity, 0};
    assert_true(strait_reader_float(&r) == -1.5f);
    assert_true(strait_reader_real(&r) == 0x1.8p-1030);
    assert_false(r.is_short);
    assert_true(strait_reader_real(&r) == 0.0);
    assert_true(r.is_short);
}

static void writes_texts_after_their_length(void **state) {
    (void)state;
    unsigned char capacity[8];
    char out[4];
    strait_writer w = {capacity, sizeof capacity, 0};
    strait_writer_text(&w, 2, "abc");
    strait_writer_text(&w, 1, "d");
    assert_false(w.is_short);
    const unsigned char want[] = {3, 0, 'a', 'b', 'c', 1, 'd'};
    assert_memory_equal(capacity, want, sizeof want);
    strait_reader r = {capacity, sizeof want, 0};
    strait_reader_text(&r, 2, out, sizeof out);
    assert_string_equal(out, "abc");
    strait_reader_text(&r, 1, out, sizeof out);
    assert_string_equal(out, "d");
    assert_false(r.is_short);
    strait_writer_text(&w, 2, "e");
    assert_true(w.is_short);
}

static void rejects_texts_that_do_not_fit(void **state) {
    (void)state;
    const unsigned char four[] = {4, 'a', 'b', 'c', 'd'}, cut[] = {3, 'a'};
    char out[4] = "zzz";
    strait_reader r = {four, sizeof four, 0};
    strait_reader_text(&r, 1, out, sizeof out);
    assert_true(r.is_short);
    assert_string_equal(out, "");
    r = (strait_reader){cut, sizeof cut, 0};
    strait_reader_text(&r, 1, out, sizeof out);
    assert_true(r.is_short);
    assert_string_equal(out, "");
}

static void rejects_texts_with_a_zero_inside(void **state) {
    (void)state;
    const unsigned char hidden[] = {3, 'a', 0, 'b'};
    char out[4] = "zzz";
    strait_reader r = {hidden, sizeof hidden, 0};
    strait_reader_text(&r, 1, out, sizeof out);
    assert_true(r.is_short);
    assert_string_equal(out, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preserves_bits_of_numbers),
        cmocka_unit_test(writes_texts_after_their_length),
        cmocka_unit_test(rejects_texts_that_do_not_fit),
        cmocka_unit_test(rejects_texts_with_a_zero_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
