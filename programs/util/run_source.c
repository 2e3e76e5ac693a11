#include "run_source.h"

#include <string.h>

/* As the library decides what a run's folder is (session.h): run.yaml alone is no sign of one. */
static int holds_run(const char *folder) {
    char path[STRAIT_FILES_PATH];
    return (strait_files_path(path, "%s/metrics.jsonl", folder) == STRAIT_OK &&
            strait_files_exists(path)) ||
           (strait_files_path(path, "%s/checkpoints", folder) == STRAIT_OK &&
            strait_files_exists(path));
}

static strait_err resume_folder(const char *folder, int resumes, strait_run_source *source) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    STRAIT_TRY(strait_files_path(source->folder, "%.*s", (int)n, folder));
    STRAIT_TRY(strait_files_path(source->file, "%s/run.yaml", source->folder));
    if (!resumes)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s is a folder: give a run file%s", source->folder,
                           holds_run(source->folder) ? ", or --resume to continue the run in it"
                                                     : "");
    if (!strait_files_exists(source->file))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s contains no run: there is no run.yaml in it",
                           source->folder);
    return STRAIT_OK;
}

/* "runs/x/run.yaml" is in the folder "runs/x", "run.yaml" in ".". */
static strait_err folder_of_file(strait_run_source *source) {
    char parent[STRAIT_FILES_PATH];
    const char *slash = strrchr(source->file, '/');
    if (strcmp(slash != NULL ? slash + 1 : source->file, "run.yaml") != 0) return STRAIT_OK;
    if (slash == NULL)
        STRAIT_TRY(strait_files_path(parent, "."));
    else
        STRAIT_TRY(strait_files_path(parent, "%.*s", (int)(slash - source->file), source->file));
    return holds_run(parent) ? strait_files_path(source->folder, "%s", parent) : STRAIT_OK;
}

strait_err strait_run_source_find(const char *argument, int resumes, const char *out,
                                  strait_run_source *source) {
    *source = (strait_run_source){0};
    if (strait_files_is_folder(argument)) {
        STRAIT_TRY(resume_folder(argument, resumes, source));
        if (out == NULL || strait_files_is_same(out, source->folder)) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "--resume %s continues in that folder, and --out names another one: %s",
                           source->folder, out);
    }
    if (!strait_files_exists(argument))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: no such %s", argument,
                           resumes ? "folder of a run or run file" : "run file");
    STRAIT_TRY(strait_files_path(source->file, "%s", argument));
    if (out != NULL) return strait_files_path(source->folder, "%s", out);
    return folder_of_file(source);
}

strait_err strait_run_source_name(strait_run_source *source, const char *name) {
    if (source->folder[0] == '\0') STRAIT_TRY(strait_files_path(source->folder, "runs/%s", name));
    if (!strait_files_exists(source->folder) || strait_files_is_folder(source->folder))
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s is a file: --out DIR names the folder of the run",
                       source->folder);
}
