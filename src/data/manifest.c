#include "data/manifest.h"

#include "data/corpus.h"

#include <string.h>

enum {
    MANIFEST_LIMIT = 64 << 20, // bytes; bounds the memory for a file that is no manifest
    VERSION = 1
};
static const char format_name[] = "strait-corpus";

/* A version that is not known is refused rather than read by guess. */
static strait_err read_document(struct strait_manifest *manifest) {
    const char *format = NULL;
    int64_t version = 0;
    const strait_err err = strait_json_string(manifest->document, "format", &format);
    if (err != STRAIT_OK) strait_err_prefix("not a manifest of token shards");
    STRAIT_TRY(err);
    if (strcmp(format, format_name) != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "format is \"%s\"; expected \"%s\"", format, format_name);
    STRAIT_TRY(strait_json_int(manifest->document, "version", &version));
    if (version != VERSION)
        return STRAIT_FAIL(STRAIT_EDATA, "manifest version %lld; this program reads %d",
                           (long long)version, VERSION);
    STRAIT_TRY(strait_json_array(manifest->document, "shards", &manifest->shards));
    const size_t n = json_array_size(manifest->shards);
    if (n == 0 || n > INT32_MAX) return STRAIT_FAIL(STRAIT_EDATA, "\"shards\" names no file");
    manifest->n_shards = (int)n;
    return STRAIT_OK;
}

/* Shards are named relative to the manifest, wherever the program runs. */
static strait_err load(struct strait_manifest *manifest, const char *path) {
    *manifest = (struct strait_manifest){.path = path};
    const char *slash = strrchr(path, '/');
    STRAIT_TRY(strait_file_path(manifest->folder, "%.*s",
                                slash == NULL ? 0 : (int)(slash - path + 1), path));
    return strait_json_load(path, MANIFEST_LIMIT, &manifest->document);
}

/* Closes the manifest if its document is not what it should be. */
static strait_err check(struct strait_manifest *manifest) {
    const strait_err err = read_document(manifest);
    if (err != STRAIT_OK) {
        strait_err_prefix("%s", manifest->path);
        strait_manifest_fini(manifest);
    }
    return err;
}

strait_err strait_manifest_init(struct strait_manifest *manifest, const char *path) {
    STRAIT_TRY(load(manifest, path));
    return check(manifest);
}

strait_err strait_manifest_probe(struct strait_manifest *manifest, const char *path,
                                 int *is_manifest) {
    *is_manifest = 0;
    STRAIT_TRY(load(manifest, path));
    const char *format = json_string_value(json_object_get(manifest->document, "format"));
    if (format == NULL || strcmp(format, format_name) != 0) {
        strait_manifest_fini(manifest);
        return STRAIT_OK;
    }
    STRAIT_TRY(check(manifest));
    *is_manifest = 1;
    return STRAIT_OK;
}

void strait_manifest_fini(struct strait_manifest *manifest) {
    json_decref(manifest->document);
    manifest->document = NULL;
}

/* The length of the hash is checked here, since it is copied into an array of that size. */
static strait_err read_entry(const struct strait_manifest *manifest, int index,
                             strait_manifest_entry *out) {
    const json_t *item = json_array_get(manifest->shards, (size_t)index);
    const char *file = NULL;
    const char *hash = NULL;
    STRAIT_TRY(strait_json_string(item, "file", &file));
    STRAIT_TRY(strait_json_int(item, "tokens", &out->n_tokens));
    STRAIT_TRY(strait_json_string(item, "hash", &hash));
    if (strlen(hash) != STRAIT_HASH_TEXT - 1)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: hash \"%.40s\" is not %d hexadecimal digits", file,
                           hash, STRAIT_HASH_TEXT - 1);
    memcpy(out->hash, hash, sizeof out->hash);
    return strait_file_path(out->path, "%s%s", file[0] == '/' ? "" : manifest->folder, file);
}

strait_err strait_manifest_shard(const struct strait_manifest *manifest, int index,
                                 strait_manifest_entry *out) {
    const strait_err err = read_entry(manifest, index, out);
    if (err != STRAIT_OK) strait_err_prefix("%s: shard %d", manifest->path, index);
    return err;
}

/* Appends `item` to `list` and takes ownership of it; json_array_append_new releases it on error.
 */
static strait_err append(json_t *list, json_t *item) {
    if (json_array_append_new(list, item) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "manifest: JSON document");
    return STRAIT_OK;
}

/* Appends the entry of a shard. Only its file name is stored, so that the folder can be moved. */
static strait_err describe_shard(const strait_corpus_shard *shard, json_t *list) {
    char hash[STRAIT_HASH_TEXT];
    STRAIT_TRY(strait_hash_file(shard->path, hash));
    const char *slash = strrchr(shard->path, '/');
    return append(list, json_pack("{s:s, s:I, s:s}", "file", slash ? slash + 1 : shard->path,
                                  "tokens", (json_int_t)shard->n_tokens, "hash", hash));
}

/* Files are hashed as they are on disk, not as they were meant to be written. */
static strait_err fill_lists(const strait_corpus_spec *spec, json_t *shards, json_t *sources) {
    for (int i = 0; i < spec->n_shards; i++)
        STRAIT_TRY(describe_shard(&spec->shards[i], shards));
    for (int i = 0; i < spec->n_sources; i++)
        STRAIT_TRY(append(sources, json_string(spec->sources[i])));
    return STRAIT_OK;
}

/* The manifest is written last: once it exists, all its shards do. */
strait_err strait_corpus_write_manifest(const char *path, const strait_corpus_spec *spec) {
    int64_t n_tokens = 0;
    for (int i = 0; i < spec->n_shards; i++)
        n_tokens += spec->shards[i].n_tokens;
    json_t *shards = json_array();
    json_t *sources = json_array();
    strait_err err = fill_lists(spec, shards, sources);
    /* json_pack takes both lists, also when it fails, so only the document is released below. */
    json_t *document = json_pack("{s:s, s:i, s:I, s:I, s:s?, s:o, s:o}", "format", format_name,
                                 "version", VERSION, "tokens", (json_int_t)n_tokens, "vocabulary",
                                 (json_int_t)spec->vocab, "tokenizer", spec->tokenizer, "shards",
                                 shards, "sources", sources);
    if (err == STRAIT_OK && document == NULL)
        err = STRAIT_FAIL(STRAIT_ENOMEM, "%s: JSON document", path);
    if (err == STRAIT_OK) err = strait_json_replace(path, document);
    json_decref(document);
    return err;
}
