/* Which known name was meant, and names in words. */
#include "base/names.h"

#include "check.h"

static int edits_between(const char *word, const char *known) {
    strait_nearest nearest = strait_names_nearest(word, 100);
    strait_names_try(&nearest, known, strlen(known));
    return nearest.name != NULL ? nearest.n_edits : -1;
}

static void computes_edit_distances(void **state) {
    (void)state;
    assert_int_equal(edits_between("train", "train"), 0);
    assert_int_equal(edits_between("trian", "train"), 2);
    assert_int_equal(edits_between("resum", "resume"), 1);
    assert_int_equal(edits_between("outt", "out"), 1);
    assert_int_equal(edits_between("", "out"), 3);
    assert_int_equal(edits_between("out", ""), 3);
}

static void ignores_words_that_are_too_long(void **state) {
    (void)state;
    const char longest[] = "a-word-of-more-than-sixty-four-letters-which-nobody-would-make-a-flag";
    char just[65];
    assert_int_equal(edits_between(longest, longest), -1);
    assert_int_equal(edits_between(longest, "flag"), -1);
    memset(just, 'x', 64);
    just[64] = '\0';
    assert_int_equal(edits_between(just, just), 0);
}

static void keeps_first_of_equally_near_names(void **state) {
    (void)state;
    strait_nearest nearest = strait_names_nearest("tran", strait_names_max_edits("tran"));
    strait_names_try(&nearest, "grand", 5); // two away
    assert_string_equal(nearest.name, "grand");
    strait_names_try(&nearest, "train", 5);
    strait_names_try(&nearest, "trans", 5);
    assert_string_equal(nearest.name, "train");
    assert_int_equal(nearest.n_edits, 1);
    strait_names_offer(&nearest, "elsewhere", 4, 0);
    assert_string_equal(nearest.name, "elsewhere");
    assert_int_equal(nearest.length, 4);
}

static void suggests_nothing_for_distant_words(void **state) {
    (void)state;
    strait_nearest nearest = strait_names_nearest("eval", strait_names_max_edits("eval"));
    strait_names_try(&nearest, "relay", 5); // three away
    assert_null(nearest.name);
    nearest = strait_names_nearest("eval", -1); // nothing is near enough
    strait_names_try(&nearest, "eval", 4);
    assert_null(nearest.name);
    nearest = strait_names_nearest("modle", 2);
    strait_names_try(&nearest, "model.width", 5);
    assert_int_equal(nearest.length, 5);
}

static void allows_fewer_edits_in_short_words(void **state) {
    (void)state;
    assert_int_equal(strait_names_max_edits(""), -1);
    assert_int_equal(strait_names_max_edits("x"), -1);
    assert_int_equal(strait_names_max_edits("zsh"), 1);
    assert_int_equal(strait_names_max_edits("hlep"), 2);
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
        cmocka_unit_test(computes_edit_distances),
        cmocka_unit_test(ignores_words_that_are_too_long),
        cmocka_unit_test(keeps_first_of_equally_near_names),
        cmocka_unit_test(suggests_nothing_for_distant_words),
        cmocka_unit_test(allows_fewer_edits_in_short_words),
        cmocka_unit_test(lists_names_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
