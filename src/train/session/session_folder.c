#include "train/session/session_folder.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/run_auto.h"
#include "config/run_rule.h"
#include "train/outlook/choose.h"

enum {
    TOKENIZER_MAX = 1 << 28
};

static int has(const char *folder, const char *name) {
    char path[STRAIT_PATH_MAX];
    return strait_file_path(path, "%s/%s", folder, name) == STRAIT_OK && strait_file_exists(path);
}

int strait_session_holds_run(const char *folder) {
    return has(folder, STRAIT_FOLDER_METRICS) || has(folder, STRAIT_FOLDER_CHECKPOINTS);
}

strait_err strait_session_check_folder(const char *folder, int resumes) {
    static const char *const copies[] = {STRAIT_FOLDER_RUN, STRAIT_FOLDER_TOKENIZER};
    const int holds_run = strait_session_holds_run(folder);
    if (holds_run && !resumes)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s already contains a run: resume it, or choose another folder",
                           folder);
    for (size_t i = 0; !holds_run && i < sizeof copies / sizeof *copies; i++)
        if (has(folder, copies[i]))
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "%s/%s would be overwritten, but no run wrote it: choose another "
                               "folder",
                               folder, copies[i]);
    return STRAIT_OK;
}

strait_err strait_session_copy_tokenizer(const strait_run *run, const char *folder) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    if (run->data.tokenizer[0] == '\0') return STRAIT_OK;
    STRAIT_TRY(strait_file_path(path, "%s/" STRAIT_FOLDER_TOKENIZER, folder));
    STRAIT_TRY(strait_file_read(run->data.tokenizer, TOKENIZER_MAX, &text, &bytes));
    const strait_err err = strait_file_replace(path, text, bytes);
    strait_alloc_free(text);
    return err;
}

/* What people should know of links that the choice misjudged. A link that cannot be judged is no
 * reason to end a run. */
static void check_links(const strait_run *run, const strait_choose_params *params,
                        char text[STRAIT_CHOICE_TEXT]) {
    uint64_t told = 0;
    if (strait_choose_check(run, params, &told, text) != STRAIT_OK) text[0] = '\0';
}

strait_err strait_session_choose(const strait_session_spec *spec, int is_swarm, strait_run **out) {
    strait_choose_params params = strait_choose_locally(spec->run);
    char text[STRAIT_CHOICE_TEXT] = "";
    strait_run *run = NULL;
    if (is_swarm) params = (strait_choose_params){.is_swarm = 1};
    if (strait_run_is_auto(spec->run) || strait_run_is_unnamed(spec->run) ||
        spec->run->model.table_rows == 0 || spec->run->link.codec.rule != 0 ||
        spec->run->stages.microbatch == 0) {
        STRAIT_TRY(strait_alloc(1, sizeof *run, "run", (void **)&run));
        *run = *spec->run;
        const strait_err err = strait_choose_in(run, spec->folder, &params, text);
        if (err != STRAIT_OK) strait_alloc_free(run);
        STRAIT_TRY(err);
    }
    if (text[0] == '\0') check_links(run != NULL ? run : spec->run, &params, text);
    if (text[0] == '\0') strait_run_describe_rule(run != NULL ? run : spec->run, text, sizeof text);
    if (text[0] != '\0' && spec->events.noted != NULL) spec->events.noted(spec->events.user, text);
    *out = run;
    return STRAIT_OK;
}
