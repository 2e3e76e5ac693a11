/* Keys: one for all hosts of a machine, one for each running worker. */
#include "swarm/keys.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the key that a new worker gets. */
static strait_fingerprint key_of_worker(const char *place) {
    struct strait_identity *identity = NULL;
    int lock = 0, number = 0;
    CHECK_OK(strait_keys_open_worker(place, &number, &lock, &identity));
    const strait_fingerprint key = *strait_identity_fingerprint(identity);
    strait_identity_close(&identity);
    strait_file_unlock(&lock);
    return key;
}

static void all_hosts_share_one_key(void **state) {
    (void)state;
    scratch folder = scratch_open();
    struct strait_identity *a = NULL;
    struct strait_identity *b = NULL;
    CHECK_OK(strait_keys_open_host(scratch_at(&folder, "new/keys"), &a));
    CHECK_OK(strait_keys_open_host(scratch_at(&folder, "new/keys"), &b));
    assert_true(
        strait_fingerprint_equal(strait_identity_fingerprint(a), strait_identity_fingerprint(b)));
    const strait_fingerprint worker = key_of_worker(scratch_at(&folder, "new/keys"));
    assert_false(strait_fingerprint_equal(strait_identity_fingerprint(a), &worker));
    strait_identity_close(&a);
    strait_identity_close(&b);
    scratch_close(&folder);
}

/* Locks belong to processes, so a child process plays the other worker. */
static void each_running_worker_gets_its_own_key(void **state) {
    (void)state;
    scratch folder = scratch_open();
    const char *place = scratch_at(&folder, "keys");
    const strait_fingerprint first = key_of_worker(place);
    int ready[2];
    int done[2];
    char byte = 0;
    assert_int_equal(pipe(ready) | pipe(done), 0);
    const pid_t other = fork();
    if (other == 0) {
        struct strait_identity *identity = NULL;
        int lock = 0, number = 0;
        const strait_err err = strait_keys_open_worker(place, &number, &lock, &identity);
        const int is_good = err == STRAIT_OK &&
                            strait_fingerprint_equal(strait_identity_fingerprint(identity), &first);
        (void)!write(ready[1], &byte, 1);
        (void)!read(done[0], &byte, 1);
        _exit(is_good ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(strait_keys_process(place, 1), other);
    assert_int_equal(strait_keys_process(place, 2), 0);
    const strait_fingerprint second = key_of_worker(place);
    assert_false(strait_fingerprint_equal(&first, &second));
    assert_int_equal(write(done[1], &byte, 1), 1);
    int status = 1;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    assert_int_equal(strait_keys_process(place, 1), 0);
    const strait_fingerprint third = key_of_worker(place);
    assert_true(strait_fingerprint_equal(&first, &third)); // it is free again
    struct stat info;
    assert_int_equal(stat(scratch_at(&folder, "keys/node-2.pem"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    scratch_close(&folder);
}

static ino_t synced; // the file or folder of the latest fsync

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    struct stat info;
    if (fstat(fd, &info) == 0) synced = info.st_ino;
    return __real_fsync(fd);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

/* Otherwise a power cut could leave an invite that names a key which no longer exists. */
static void new_key_is_on_disk_before_it_is_used(void **state) {
    (void)state;
    scratch folder = scratch_open();
    struct strait_identity *identity = NULL;
    struct stat info;
    CHECK_OK(strait_keys_open_host(scratch_at(&folder, "keys"), &identity));
    assert_int_equal(stat(scratch_at(&folder, "keys"), &info), 0);
    assert_true(synced == info.st_ino);
    strait_identity_close(&identity);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_hosts_share_one_key),
                                       cmocka_unit_test(new_key_is_on_disk_before_it_is_used),
                                       cmocka_unit_test(each_running_worker_gets_its_own_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
