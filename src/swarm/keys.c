/* keys.c - finds or creates key files. Several processes may start at once on a machine without
 * keys, so creating and locking must be atomic. */
#include "swarm/keys.h"

#include "base/file.h"

#include <pwd.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum {
    WORKERS_MAX = 64 // of one user, at once
};

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

strait_err strait_keys_open_worker(const char *folder, int *lock, struct strait_identity **out) {
    char found[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(find_folder(folder, found));
    for (int i = 1; i <= WORKERS_MAX; i++) {
        char number[16] = "";
        if (i > 1) (void)snprintf(number, sizeof number, "-%d", i);
        STRAIT_TRY(strait_file_path(path, "%s/node%s.lock", found, number));
        if (strait_file_lock(path, lock) != STRAIT_OK) continue; // another worker uses it
        STRAIT_TRY(strait_file_path(path, "%s/node%s.pem", found, number));
        const strait_err err = open_key(path, out);
        if (err != STRAIT_OK) strait_file_unlock(lock);
        return err;
    }
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot lock a key there, or %d workers run already", found,
                       WORKERS_MAX);
}
