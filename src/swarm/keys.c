/* keys.c - finds or creates key files. Several processes may start at once on a machine without
 * keys, so creating and locking must be atomic. */
#include "swarm/keys.h"

#include "base/file.h"

#include <pwd.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

/* From the user database, not from $HOME: src/ reads no environment. */
static strait_err home_folder(char out[STRAIT_PATH_MAX]) {
    struct passwd entry;
    struct passwd *user = NULL;
    char text[STRAIT_PATH_MAX];
    if (getpwuid_r(getuid(), &entry, text, sizeof text, &user) != 0 || user == NULL ||
        user->pw_dir == NULL || user->pw_dir[0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "this user has no home folder: choose a folder of keys");
    return strait_file_path(out, "%s/.config/strait", user->pw_dir);
}

static strait_err find_folder(const char *folder, char out[STRAIT_PATH_MAX]) {
    if (folder == NULL)
        STRAIT_TRY(home_folder(out));
    else
        STRAIT_TRY(strait_file_path(out, "%s", folder));
    const strait_err err = strait_file_make_folders(out);
    if (err != STRAIT_OK) strait_err_prefix("cannot create the folder of keys (choose another)");
    return err;
}

static strait_err open_key(const char *path, struct strait_identity **out) {
    struct strait_identity *identity = NULL;
    if (strait_file_exists(path)) return strait_identity_load(path, out);
    STRAIT_TRY(strait_identity_generate(&identity));
    const strait_err err = strait_identity_save(identity, path);
    strait_identity_close(&identity);
    if (err != STRAIT_OK && !strait_file_exists(path)) return err;
    return strait_identity_load(path, out); // ours, or the key of a process that created it first
}

strait_err strait_keys_open_host(const char *folder, struct strait_identity **out) {
    char found[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(find_folder(folder, found));
    STRAIT_TRY(strait_file_path(path, "%s/host.pem", found));
    return open_key(path, out);
}

strait_err strait_keys_worker_file(const char *folder, int i, const char *ending,
                                   char out[STRAIT_PATH_MAX]) {
    char found[STRAIT_PATH_MAX], number[16] = "";
    STRAIT_TRY(find_folder(folder, found));
    if (i > 1) (void)snprintf(number, sizeof number, "-%d", i);
    return strait_file_path(out, "%s/node%s.%s", found, number, ending);
}

int64_t strait_keys_process(const char *folder, int i) {
    char path[STRAIT_PATH_MAX];
    if (strait_keys_worker_file(folder, i, "lock", path) != STRAIT_OK) return 0;
    return strait_file_lock_holder(path);
}

strait_err strait_keys_open_worker(const char *folder, int *number, int *lock,
                                   struct strait_identity **out) {
    char path[STRAIT_PATH_MAX];
    for (int i = 1; i <= STRAIT_KEYS_WORKERS; i++) {
        STRAIT_TRY(strait_keys_worker_file(folder, i, "lock", path));
        if (strait_file_lock(path, lock) != STRAIT_OK) continue; // another worker uses it
        STRAIT_TRY(strait_keys_worker_file(folder, i, "pem", path));
        const strait_err err = open_key(path, out);
        if (err != STRAIT_OK) strait_file_unlock(lock);
        *number = i;
        return err;
    }
    STRAIT_TRY(find_folder(folder, path));
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot lock a key there, or %d workers run already", path,
                       STRAIT_KEYS_WORKERS);
}
