/* Whole files, folders and locks. */
#include "base/file.h"

#include "base/alloc.h"
#include "base/digest/hash.h"
#include "check.h"
#include "scratch.h"

#include <sys/stat.h>
#include <sys/wait.h>

static scratch folder;

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}

static void reads_back_what_was_written(void **state) {
    (void)state;
    static const char bytes[] = "one\0two";
    const char *path = scratch_at(&folder, "file");
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(strait_file_write(path, "something longer than what follows", 34));
    CHECK_OK(strait_file_write(path, bytes, sizeof bytes));
    CHECK_OK(strait_file_read(path, sizeof bytes, &text, &n));
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(text, bytes, sizeof bytes);
    assert_int_equal(text[n], 0);
    strait_alloc_free(text);
    CHECK_FAILS(strait_file_read(path, 7, &text, &n), STRAIT_EDATA, "8 bytes, more than the 7");
    CHECK_OK(strait_file_write(path, "", 0));
    CHECK_OK(strait_file_read(path, 0, &text, NULL));
    assert_string_equal(text, "");
    strait_alloc_free(text);
}

static void replaces_files_atomically(void **state) {
    (void)state;
    const char *path = scratch_at(&folder, "replaced");
    char *text = NULL;
    CHECK_OK(strait_file_replace(path, "old", 3));
    CHECK_OK(strait_file_replace(path, "newer", 5));
    /* A folder in the way of the new one: the old stays. */
    assert_int_equal(mkdir(scratch_at(&folder, "replaced.tmp"), 0777), 0);
    CHECK_FAILS(strait_file_replace(path, "newest", 6), STRAIT_EIO, "replaced.tmp: cannot create");
    CHECK_OK(strait_file_read(path, 100, &text, NULL));
    assert_string_equal(text, "newer");
    strait_alloc_free(text);
    CHECK_FAILS(strait_file_replace(scratch_at(&folder, "no/where"), "x", 1), STRAIT_EIO,
                "cannot create");
    /* A folder where the file would go: what was written beside it is taken away. */
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "taken/inner")));
    CHECK_FAILS(strait_file_replace(scratch_at(&folder, "taken"), "x", 1), STRAIT_EIO,
                "taken: cannot rename into place");
    assert_false(strait_file_exists(scratch_at(&folder, "taken.tmp")));
}

static void maps_the_whole_file(void **state) {
    (void)state;
    strait_file_map map = {NULL, 0};
    CHECK_OK(strait_file_write(scratch_at(&folder, "map"), "abc", 3));
    CHECK_OK(strait_file_map_open(scratch_at(&folder, "map"), &map));
    assert_int_equal(map.bytes, 3);
    assert_memory_equal(map.data, "abc", 3);
    strait_file_map_close(&map);
    strait_file_map_close(&map);
    CHECK_OK(strait_file_write(scratch_at(&folder, "map"), "", 0));
    CHECK_OK(strait_file_map_open(scratch_at(&folder, "map"), &map));
    assert_null(map.data);
    CHECK_FAILS(strait_file_map_open(folder.path, &map), STRAIT_EIO, "is a folder; name a file");
    CHECK_FAILS(strait_file_map_open(scratch_at(&folder, "gone"), &map), STRAIT_EIO,
                "gone: cannot open: No such file");
}

static void folders_are_made_and_removed(void **state) {
    (void)state;
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "a/b//c")));
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "a/b//c"))); // it is there
    assert_true(strait_file_is_folder(scratch_at(&folder, "a/b/c")));
    CHECK_OK(strait_file_write(scratch_at(&folder, "a/b/c/file"), "x", 1));
    assert_false(strait_file_is_folder(scratch_at(&folder, "a/b/c/file")));
    CHECK_FAILS(strait_file_make_folders(scratch_at(&folder, "a/b/c/file")), STRAIT_EIO,
                "not a folder");
    CHECK_FAILS(strait_file_make_folders(scratch_at(&folder, "a/b/c/file/d")), STRAIT_EIO,
                "cannot make folder");
    CHECK_FAILS(strait_file_remove_folder(scratch_at(&folder, "a/b")), STRAIT_EIO,
                "cannot remove"); // folders within stay
    assert_int_equal(symlink(scratch_at(&folder, "a/b/c"), scratch_at(&folder, "a/link")), 0);
    CHECK_FAILS(strait_file_remove_folder(scratch_at(&folder, "a/link")), STRAIT_EIO,
                "cannot open"); // the folder of somebody else
    assert_true(strait_file_exists(scratch_at(&folder, "a/b/c/file")));
    CHECK_OK(strait_file_remove_folder(scratch_at(&folder, "a/b/c")));
    assert_false(strait_file_exists(scratch_at(&folder, "a/b/c")));
    CHECK_OK(strait_file_remove_folder(scratch_at(&folder, "a/b/c"))); // already gone
    CHECK_FAILS(strait_file_sync_folder(scratch_at(&folder, "a/b/c")), STRAIT_EIO, "cannot open");
}

static void reports_unwritable_stream(void **state) {
    (void)state;
    FILE *file = fopen("/dev/full", "w");
    assert_non_null(file);
    assert_int_equal(fputs("words", file) >= 0, 1);
    CHECK_FAILS(strait_file_finish(&file, "full"), STRAIT_EIO, "full: cannot write: No space");
    assert_null(file);
    CHECK_OK(strait_file_finish(&file, "none"));
}

/* A lock belongs to a process, so another one has to ask. */
static int other_process_locks(const char *path) {
    const pid_t pid = fork();
    if (pid == 0) {
        int lock = 0;
        _exit(strait_file_lock(path, &lock) == STRAIT_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void a_lock_is_held_by_one_process(void **state) {
    (void)state;
    const char *path = scratch_at(&folder, "lock");
    int lock = 0;
    CHECK_OK(strait_file_lock(path, &lock));
    assert_true(lock > 0);
    assert_false(other_process_locks(path));
    strait_file_unlock(&lock);
    assert_int_equal(lock, 0);
    strait_file_unlock(&lock);
    assert_true(other_process_locks(path));
    CHECK_OK(strait_file_lock(path, &lock));
    strait_file_remove_lock(path, &lock);
    assert_int_equal(lock, 0);
    assert_false(strait_file_exists(path));
    strait_file_remove_lock(path, &lock); // holds nothing: touches nothing
    CHECK_OK(strait_file_lock(path, &lock));
    assert_true(strait_file_is_named(path, lock));
    assert_int_equal(unlink(path), 0);
    assert_false(strait_file_is_named(path, lock));
    assert_true(other_process_locks(path)); // another file by that name
    assert_false(strait_file_is_named(path, lock));
    strait_file_unlock(&lock);
    CHECK_FAILS(strait_file_lock(scratch_at(&folder, "no/lock"), &lock), STRAIT_EIO,
                "cannot create");
}

/* Another user who may open the file could lock it and keep its owner out. */
static void lock_file_is_private(void **state) {
    (void)state;
    const char *path = scratch_at(&folder, "lock");
    struct stat info;
    int lock = 0;
    for (int i = 0; i < 2; i++) { // a new one, and one that an earlier version created
        CHECK_OK(strait_file_lock(path, &lock));
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        strait_file_unlock(&lock);
        assert_int_equal(chmod(path, 0644), 0);
    }
}

static int n_synced; // calls of fsync
static ino_t synced; // the file or folder of the latest one

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    struct stat info;
    n_synced++;
    if (fstat(fd, &info) == 0) synced = info.st_ino;
    return __real_fsync(fd);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static void publishes_without_waiting_for_the_disk(void **state) {
    (void)state;
    const char *path = scratch_at(&folder, "status");
    char *text = NULL;
    n_synced = 0;
    CHECK_OK(strait_file_publish(path, "one", 3));
    CHECK_OK(strait_file_publish(path, "other", 5));
    assert_int_equal(n_synced, 0);
    CHECK_OK(strait_file_read(path, 100, &text, NULL));
    assert_string_equal(text, "other");
    strait_alloc_free(text);
    assert_false(strait_file_exists(scratch_at(&folder, "status.tmp")));
    CHECK_FAILS(strait_file_publish(scratch_at(&folder, "no/status"), "x", 1), STRAIT_EIO,
                "no/status");
}

static void syncs_the_folder_that_holds_a_new_folder(void **state) {
    (void)state;
    struct stat info;
    assert_int_equal(stat(folder.path, &info), 0);
    n_synced = 0;
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "new")));
    assert_int_equal(n_synced, 1);
    assert_true(synced == info.st_ino);
    CHECK_OK(strait_file_make_folders(scratch_at(&folder, "new"))); // exists
    assert_int_equal(n_synced, 1);
}

static void rejects_long_paths(void **state) {
    (void)state;
    static char name[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    memset(name, 'x', sizeof name - 1);
    CHECK_OK(strait_file_path(path, "%s", name));
    CHECK_FAILS(strait_file_path(path, "/%s", name), STRAIT_EINVAL, "longer than 4095 bytes");
}

static void hashes_contents_of_files(void **state) {
    (void)state;
    enum {
        BYTES = 200001 // several pieces and a rest
    };
    static unsigned char bytes[BYTES];
    char of_file[STRAIT_HASH_TEXT];
    char of_bytes[STRAIT_HASH_TEXT];
    strait_hash_text("", 0, of_bytes);
    assert_string_equal(of_bytes, "99aa06d3014798d86001c324468d497f"); // XXH3-128 of nothing
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    static const size_t sizes[] = {0, 1, 240, 65536, BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(strait_file_write(scratch_at(&folder, "hashed"), bytes, sizes[i]));
        CHECK_OK(strait_hash_file(scratch_at(&folder, "hashed"), of_file));
        strait_hash_text(bytes, sizes[i], of_bytes);
        assert_string_equal(of_file, of_bytes);
        struct strait_hash *hash = NULL; // the same in two parts
        CHECK_OK(strait_hash_open(&hash));
        strait_hash_add(hash, bytes, sizes[i] / 3);
        strait_hash_add(hash, bytes + sizes[i] / 3, sizes[i] - sizes[i] / 3);
        strait_hash_finish(&hash, of_file);
        assert_null(hash);
        assert_string_equal(of_file, of_bytes);
    }
    bytes[BYTES - 1] ^= 1;
    strait_hash_text(bytes, BYTES, of_bytes);
    assert_string_not_equal(of_file, of_bytes);
    CHECK_FAILS(strait_hash_file(scratch_at(&folder, "gone"), of_file), STRAIT_EIO, "cannot open");
    CHECK_FAILS(strait_hash_file(folder.path, of_file), STRAIT_EIO, folder.path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_written),
        cmocka_unit_test(replaces_files_atomically),
        cmocka_unit_test(maps_the_whole_file),
        cmocka_unit_test(folders_are_made_and_removed),
        cmocka_unit_test(reports_unwritable_stream),
        cmocka_unit_test(a_lock_is_held_by_one_process),
        cmocka_unit_test(lock_file_is_private),
        cmocka_unit_test(publishes_without_waiting_for_the_disk),
        cmocka_unit_test(syncs_the_folder_that_holds_a_new_folder),
        cmocka_unit_test(rejects_long_paths),
        cmocka_unit_test(hashes_contents_of_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
