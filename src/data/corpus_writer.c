#include "data/corpus_writer.h"

#include "data/shard_layout.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char lock_name[] = ".lock";

static strait_err stem_of(const char *out, char stem[STRAIT_PATH_MAX]) {
    const size_t n = strlen(out);
    if (n <= 4 || strcmp(out + n - 4, ".bin") != 0 || out[n - 5] == '/')
        return STRAIT_FAIL(STRAIT_ECONFIG, "\"%s\": expected a name that ends in .bin", out);
    return strait_file_path(stem, "%.*s", (int)(n - 4), out);
}

/* The last component of a path. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static strait_err shard_path(const strait_corpus_writer *writer, const char *stem, int64_t index,
                             char path[STRAIT_PATH_MAX]) {
    if (!writer->is_sharded) return strait_file_path(path, "%s.bin", stem);
    return strait_file_path(path, "%s-%0*lld.bin", stem, STRAIT_SHARD_INDEX_DIGITS,
                            (long long)index);
}

/* The rest of `name` after the prefix `stem`, or NULL if it does not start with it. */
static const char *skip_prefix(const char *name, const char *stem) {
    const size_t n = strlen(stem);
    return strncmp(name, stem, n) == 0 ? name + n : NULL;
}

/* Whether `name` is a file of the corpus `stem`: STEM.json, STEM.bin, STEM-00000.bin. Only such
 * files are ever removed; STEM-old.bin, for example, is not ours. */
static int is_corpus_file(const char *name, const char *stem) {
    const char *rest = skip_prefix(name, stem);
    if (rest == NULL) return 0;
    if (strcmp(rest, ".json") == 0) return 1;
    const size_t n_digits = rest[0] == '-' ? strspn(rest + 1, "0123456789") : 0;
    if (n_digits >= STRAIT_SHARD_INDEX_DIGITS) rest += 1 + n_digits;
    return strcmp(rest, ".bin") == 0;
}

/* Whether `name`, a file of this corpus, is one of the n_shards shards about to be published. */
static int is_current(const strait_corpus_writer *writer, const char *name, int64_t n_shards) {
    char expected[STRAIT_PATH_MAX];
    const char *stem = name_of(writer->stem);
    const char *rest = skip_prefix(name, stem);
    const int64_t index = rest[0] == '-' ? strtoll(rest + 1, NULL, 10) : 0;
    return index < n_shards && shard_path(writer, stem, index, expected) == STRAIT_OK &&
           strcmp(expected, name) == 0;
}

static strait_err open_parent(const char *stem, DIR **out) {
    char path[STRAIT_PATH_MAX];
    const int n = (int)(name_of(stem) - stem);
    STRAIT_TRY(strait_file_path(path, "%s%.*s", n > 0 ? "" : ".", n, stem));
    *out = opendir(path);
    if (*out == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: the folder cannot be read", path);
    return STRAIT_OK;
}

strait_err strait_corpus_writer_find_existing(const char *out, char path[STRAIT_PATH_MAX]) {
    char stem[STRAIT_PATH_MAX];
    DIR *folder = NULL;
    path[0] = '\0';
    STRAIT_TRY(stem_of(out, stem));
    STRAIT_TRY(open_parent(stem, &folder));
    const struct dirent *entry;
    strait_err err = STRAIT_OK;
    while ((entry = readdir(folder)) != NULL && err == STRAIT_OK) // NOLINT(concurrency-mt-unsafe)
        if (is_corpus_file(entry->d_name, name_of(stem)) &&
            (path[0] == '\0' || strcmp(entry->d_name, name_of(path)) < 0)) // deterministic
            err = strait_file_path(path, "%.*s%s", (int)(name_of(stem) - stem), stem,
                                   entry->d_name);
    (void)closedir(folder);
    return err;
}

strait_err strait_corpus_writer_would_overwrite(const char *out, const char *input,
                                                int *overwrites) {
    char stem[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    DIR *folder = NULL;
    *overwrites = 0;
    STRAIT_TRY(stem_of(out, stem));
    STRAIT_TRY(open_parent(stem, &folder));
    const struct dirent *entry;
    strait_err err = STRAIT_OK;
    while ((entry = readdir(folder)) != NULL && err == STRAIT_OK) { // NOLINT(concurrency-mt-unsafe)
        if (!is_corpus_file(entry->d_name, name_of(stem))) continue;
        err = strait_file_path(path, "%.*s%s", (int)(name_of(stem) - stem), stem, entry->d_name);
        if (err == STRAIT_OK) *overwrites |= strait_file_is_same(path, input);
    }
    (void)closedir(folder);
    return err;
}

/* Removes everything but the lock file: another process must find it to see that it is held. */
static void empty_folder(const char *path) {
    const struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (strcmp(entry->d_name, lock_name) != 0) (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder != NULL) (void)closedir(folder);
}

strait_err strait_corpus_writer_init(strait_corpus_writer *writer, const char *out,
                                     int is_sharded) {
    char path[STRAIT_PATH_MAX];
    *writer = (strait_corpus_writer){.is_sharded = is_sharded};
    STRAIT_TRY(stem_of(out, writer->stem));
    STRAIT_TRY(strait_file_path(path, "%s.tmp", out));
    (void)unlink(path); // removes a plain file of that name; fails harmlessly on a folder
    STRAIT_TRY(strait_file_make_folders(path));
    STRAIT_TRY(strait_file_path(writer->folder, "%s", path));
    STRAIT_TRY(strait_file_path(path, "%s/%s", writer->folder, lock_name));
    const strait_err err = strait_file_lock(path, &writer->lock);
    if (err != STRAIT_OK)
        writer->folder[0] = '\0'; // another process owns it: fini must not remove it
    else
        empty_folder(writer->folder);
    return err;
}

strait_err strait_corpus_writer_shard(const strait_corpus_writer *writer, int64_t index,
                                      char path[STRAIT_PATH_MAX]) {
    char stem[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(stem, "%s/%s", writer->folder, name_of(writer->stem)));
    return shard_path(writer, stem, index, path);
}

strait_err strait_corpus_writer_manifest(const strait_corpus_writer *writer,
                                         char path[STRAIT_PATH_MAX]) {
    return strait_file_path(path, "%s/%s.json", writer->folder, name_of(writer->stem));
}

/* Removes the old manifest and the shards that the new corpus does not overwrite. */
static strait_err remove_old(const strait_corpus_writer *writer, int64_t n_shards) {
    DIR *folder = NULL;
    STRAIT_TRY(open_parent(writer->stem, &folder));
    const struct dirent *entry;
    strait_err err = STRAIT_OK;
    while ((entry = readdir(folder)) != NULL && err == STRAIT_OK) { // NOLINT(concurrency-mt-unsafe)
        if (!is_corpus_file(entry->d_name, name_of(writer->stem)) ||
            is_current(writer, entry->d_name, n_shards))
            continue;
        if (unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT)
            err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot remove this file of the old corpus",
                              entry->d_name);
    }
    (void)closedir(folder);
    return err;
}

strait_err strait_corpus_writer_publish(strait_corpus_writer *writer, int64_t n_shards) {
    char from[STRAIT_PATH_MAX];
    char to[STRAIT_PATH_MAX];
    STRAIT_TRY(remove_old(writer, n_shards));
    for (int64_t i = 0; i < n_shards; i++) {
        STRAIT_TRY(strait_corpus_writer_shard(writer, i, from));
        STRAIT_TRY(shard_path(writer, writer->stem, i, to));
        STRAIT_TRY(strait_file_move(from, to));
    }
    STRAIT_TRY(strait_corpus_writer_manifest(writer, from));
    STRAIT_TRY(strait_file_path(to, "%s.json", writer->stem));
    return strait_file_move(from, to);
}

void strait_corpus_writer_fini(strait_corpus_writer *writer) {
    if (writer->folder[0] != '\0') (void)strait_file_remove_folder(writer->folder);
    strait_file_unlock(&writer->lock);
    *writer = (strait_corpus_writer){0};
}
