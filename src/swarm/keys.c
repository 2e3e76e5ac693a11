#include "swarm/keys.h"

#include "base/file.h"

#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

static strait_err home_folder(char out[STRAIT_PATH_MAX]) {
    struct passwd room;
    struct passwd *user = NULL;
    char text[STRAIT_PATH_MAX];
    if (getpwuid_r(getuid(), &room, text, sizeof text, &user) != 0 || user == NULL ||
        user->pw_dir == NULL || user->pw_dir[0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "this user has no home: say --keys DIR");
    return strait_file_path(out, "%s/.config/strait", user->pw_dir);
}

strait_err strait_keys_open(const char *folder, struct strait_identity **out) {
    char home[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    struct strait_identity *identity = NULL;
    if (folder == NULL) {
        STRAIT_TRY(home_folder(home));
        folder = home;
    }
    STRAIT_TRY(strait_file_path(path, "%s/node.pem", folder));
    if (strait_file_exists(path)) return strait_identity_load(path, out);
    STRAIT_TRY(strait_file_make_folders(folder));
    STRAIT_TRY(strait_identity_make(&identity));
    const strait_err err = strait_identity_save(identity, path);
    strait_identity_close(&identity);
    if (err != STRAIT_OK && !strait_file_exists(path)) return err;
    return strait_identity_load(path, out); // ours, or that of someone who was faster
}
