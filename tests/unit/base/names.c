/* Which known name was meant, and names in words. */
#include "base/names.h"

#include "check.h"

static int slips_between(const char *word, const char *known) {
    strait_nearest nearest = strait_names_nearest(word, 100);
    strait_names_try(&nearest, known, strlen(known));
    return nearest.name != NULL ? nearest.slips : -1;
}

static void counts_the_slips_between_words(void **state) {
    (void)state;
    assert_int_equal(slips_between("train", "train"), 0);
    assert_int_equal(slips_between("trian", "train"), 2);
    assert_int_equal(slips_between("resum", "resume"), 1);
    assert_int_equal(slips_between("outt", "out"), 1);
    assert_int_equal(slips_between("", "out"), 3);
    assert_int_equal(slips_between("out", ""), 3);
}

static void long_words_have_no_neighbours(void **state) {
    (void)state;
    const char longest[] = "a-word-of-more-than-sixty-four-letters-which-nobody-would-make-a-flag";
    char just[65];
    assert_int_equal(slips_between(longest, longest), -1);
    assert_int_equal(slips_between(longest, "flag"), -1);
    memset(just, 'x', 64);
    just[64] = '\0';
    assert_int_equal(slips_between(just, just), 0);
}

static void keeps_the_nearest_and_of_equals_the_first(void **state) {
    (void)state;
    strait_nearest nearest = strait_names_nearest("tran", strait_names_slips("tran"));
    strait_names_try(&nearest, "grand", 5); // two away
    assert_string_equal(nearest.name, "grand");
    strait_names_try(&nearest, "train", 5);
    strait_names_try(&nearest, "trans", 5);
    assert_string_equal(nearest.name, "train");
    assert_int_equal(nearest.slips, 1);
    strait_names_offer(&nearest, "elsewhere", 4, 0);
    assert_string_equal(nearest.name, "elsewhere");
    assert_int_equal(nearest.length, 4);
}

static void what_is_too_far_is_not_taken(void **state) {
    (void)state;
    strait_nearest nearest = strait_names_nearest("eval", strait_names_slips("eval"));
    strait_names_try(&nearest, "relay", 5); // three away
    assert_null(nearest.name);
    nearest = strait_names_nearest("eval", -1); // nothing is near enough
    strait_names_try(&nearest, "eval", 4);
    assert_null(nearest.name);
    nearest = strait_names_nearest("modle", 2);
    strait_names_try(&nearest, "model.width", 5);
    assert_int_equal(nearest.length, 5);
}

static void short_words_may_miss_by_less(void **state) {
    (void)state;
    assert_int_equal(strait_names_slips(""), -1);
    assert_int_equal(strait_names_slips("x"), -1);
    assert_int_equal(strait_names_slips("zsh"), 1);
    assert_int_equal(strait_names_slips("hlep"), 2);
}

static void lists_names_in_words(void **state) {
    (void)state;
    char out[16] = "";
    strait_names_list(out, sizeof out, "cpu", 0);
    assert_string_equal(out, "cpu");
    strait_names_list(out, sizeof out, "cuda", 0);
    strait_names_list(out, sizeof out, "x", 1);
    assert_string_equal(out, "cpu, cuda or x");
    strait_names_list(out, sizeof out, "abacus", 1); // cut, not written past the end
    assert_string_equal(out, "cpu, cuda or x ");
    out[0] = '\0';
    strait_names_list(out, sizeof out, "one", 1);
    assert_string_equal(out, "one");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_the_slips_between_words),
        cmocka_unit_test(long_words_have_no_neighbours),
        cmocka_unit_test(keeps_the_nearest_and_of_equals_the_first),
        cmocka_unit_test(what_is_too_far_is_not_taken),
        cmocka_unit_test(short_words_may_miss_by_less),
        cmocka_unit_test(lists_names_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
