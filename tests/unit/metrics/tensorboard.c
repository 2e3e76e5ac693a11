#include "metrics/tensorboard.h"

#include "check.h"
#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Readers take the files of a run in the order of their names: the second session's must come last,
 * also if both began within a second. */
static void test_names_sessions_in_their_order(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct dirent **entries = NULL;
    struct stat first, last;
    char path[512];
    for (int64_t session = 0; session < 2; session++) {
        struct strait_tensorboard *board = NULL;
        CHECK_OK(strait_tensorboard_open(scratch_at(&dir, "events"), &board));
        for (int64_t step = 0; step <= session; step++)
            CHECK_OK(strait_tensorboard_put_valid(board, step, 4.0));
        strait_tensorboard_close(&board);
    }
    const int n = scandir(scratch_at(&dir, "events"), &entries, NULL, alphasort);
    assert_int_equal(n, 4); // with "." and ".."
    CHECK(snprintf(path, sizeof path, "%s/%s", scratch_at(&dir, "events"), entries[2]->d_name) > 0);
    CHECK(stat(path, &first) == 0);
    CHECK(snprintf(path, sizeof path, "%s/%s", scratch_at(&dir, "events"), entries[3]->d_name) > 0);
    CHECK(stat(path, &last) == 0);
    CHECK(first.st_size < last.st_size);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_sessions_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
