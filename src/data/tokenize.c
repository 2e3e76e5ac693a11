#include <strait/corpus.h>

#include "base/alloc.h"
#include "data/corpus.h"
#include "data/corpus_writer.h"
#include "data/shard.h"
#include "data/text/chat.h"
#include "data/text/chunks.h"
#include "data/tokenizer/encoder.h"

enum {
    PIECE_BYTES = 1 << 17 // long documents are split into pieces of about this size
};

struct job {
    const strait_tokenize_spec *spec;
    strait_corpus_writer output;
    struct strait_encoder **encoders; // one per worker
    int n_workers;
    struct strait_shard_writer *writer; // the shard being written; NULL between shards
    strait_corpus_shard *shards;        // all shards so far, the current one last
    size_t n_shards, shard_capacity;
    strait_tokenize_counts counts;
};

static int is_chat(const struct job *job) {
    return job->spec->text.format == STRAIT_TEXT_CHAT;
}

/* Tags the ids of a piece of a document, which are those from `first` on. */
static strait_err tag_piece(strait_chunk *chunk, const strait_chunk_end *end, size_t first) {
    if (end->begins_document && first == chunk->ids.n)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "a document begins with a text that has no token in this tokenizer");
    for (size_t i = first; end->is_untrained && i < chunk->ids.n; i++)
        chunk->ids.data[i] |= STRAIT_TOKEN_UNTRAINED;
    if (end->begins_document) chunk->ids.data[first] |= STRAIT_TOKEN_FIRST;
    return STRAIT_OK;
}

/* Encodes all pieces of a chunk into chunk->ids, with the end token after each document. Runs on
 * any worker; `worker` selects its encoder. */
static strait_err encode_chunk(void *arg, int worker, strait_chunk *chunk) {
    struct job *job = arg;
    size_t start = 0;
    chunk->ids.n = 0;
    if (strait_input_is_stop_requested(job->spec->text.stop))
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped");
    for (size_t i = 0; i < chunk->n_ends; i++) {
        const strait_chunk_end *end = &chunk->ends[i];
        const size_t first = chunk->ids.n;
        const int32_t *ids = NULL;
        size_t n = 0;
        STRAIT_TRY(strait_encoder_encode(job->encoders[worker], chunk->text.data + start,
                                         end->at - start, 0, &ids, &n));
        STRAIT_TRY(strait_ids_append(&chunk->ids, ids, n));
        if (end->ends_document && job->spec->end >= 0)
            STRAIT_TRY(strait_ids_append(&chunk->ids, &job->spec->end, 1));
        if (is_chat(job)) STRAIT_TRY(tag_piece(chunk, end, first));
        start = end->at;
    }
    return STRAIT_OK;
}

/* The path is stored before the file is created, so that cleanup knows about it. */
static strait_err start_shard(struct job *job) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_corpus_writer_shard(&job->output, (int64_t)job->n_shards, path));
    STRAIT_TRY(strait_buffer_reserve((void **)&job->shards, &job->shard_capacity, job->n_shards + 1,
                                     sizeof *job->shards));
    char *copy = NULL;
    STRAIT_TRY(strait_alloc_string(path, &copy));
    job->shards[job->n_shards++] = (strait_corpus_shard){copy, 0};
    const strait_shard_spec spec = {strait_tokenizer_vocab(job->spec->tokenizer),
                                    strait_tokenizer_fingerprint(job->spec->tokenizer),
                                    is_chat(job)};
    return strait_shard_writer_open(path, spec, &job->writer);
}

/* The count goes into the manifest, which is written after the last shard. */
static strait_err end_shard(struct job *job) {
    job->shards[job->n_shards - 1].n_tokens = strait_shard_writer_count(job->writer);
    return strait_shard_writer_finish(&job->writer);
}

/* Documents stay whole: a shard ends with the first one that fills it. */
static strait_err write_documents(struct job *job, const int32_t *ids, size_t n) {
    const int64_t limit = job->spec->shard_tokens;
    while (n > 0) {
        const int is_full = limit > 0 && job->writer != NULL &&
                            strait_shard_writer_count(job->writer) >= limit;
        if (is_full && (ids[0] & STRAIT_TOKEN_FIRST) != 0) STRAIT_TRY(end_shard(job));
        if (job->writer == NULL) STRAIT_TRY(start_shard(job));
        size_t some = 1;
        while (some < n && (ids[some] & STRAIT_TOKEN_FIRST) == 0)
            some++;
        STRAIT_TRY(strait_shard_writer_append(job->writer, ids, some));
        for (size_t i = 0; i < some; i++)
            job->counts.trained += (ids[i] & STRAIT_TOKEN_TAGS) == 0;
        ids += some;
        n -= some;
    }
    return STRAIT_OK;
}

/* Writes ids to shards of exactly spec->shard_tokens tokens; the last one may be shorter. */
static strait_err write_ids(struct job *job, const int32_t *ids, size_t n) {
    if (is_chat(job)) return write_documents(job, ids, n);
    while (n > 0) {
        if (job->writer == NULL) STRAIT_TRY(start_shard(job));
        size_t some = n;
        const int64_t limit = job->spec->shard_tokens;
        if (limit > 0) {
            const int64_t left = limit - strait_shard_writer_count(job->writer);
            if ((int64_t)some > left) some = (size_t)left;
        }
        STRAIT_TRY(strait_shard_writer_append(job->writer, ids, some));
        if (limit > 0 && strait_shard_writer_count(job->writer) == limit)
            STRAIT_TRY(end_shard(job));
        ids += some;
        n -= some;
    }
    return STRAIT_OK;
}

/* Writes a finished chunk. Called in the order of the text, whatever thread encoded it. */
static strait_err write_chunk(void *arg, strait_chunk *chunk, int64_t bytes_read, int64_t total) {
    struct job *job = arg;
    STRAIT_TRY(write_ids(job, chunk->ids.data, chunk->ids.n));
    for (size_t i = 0; i < chunk->n_ends; i++)
        job->counts.documents += chunk->ends[i].ends_document;
    job->counts.bytes += (int64_t)chunk->text.n;
    job->counts.tokens += (int64_t)chunk->ids.n;
    job->counts.bytes_read = bytes_read;
    job->counts.bytes_total = total;
    if (job->spec->progress != NULL) job->spec->progress(job->spec->arg, &job->counts);
    return STRAIT_OK;
}

static strait_err write_manifest(struct job *job) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_corpus_writer_manifest(&job->output, path));
    const strait_corpus_spec spec = {job->shards,
                                     (int)job->n_shards,
                                     strait_tokenizer_vocab(job->spec->tokenizer),
                                     strait_tokenizer_fingerprint(job->spec->tokenizer),
                                     job->spec->text.paths,
                                     job->spec->text.n_paths};
    return strait_corpus_write_manifest(path, &spec);
}

/* STRAIT_ECONFIG if the output would overwrite this input. */
static strait_err check_input(const strait_tokenize_spec *spec, const char *input) {
    int overwrites = 0;
    if (input == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_corpus_writer_would_overwrite(spec->out, input, &overwrites));
    if (!overwrites) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "output %s would overwrite %s, which is an input: choose another name",
                       spec->out, input);
}

/* Rejects an output that overwrites an input, or a corpus that the caller wants to keep. Checked at
 * the start, because tokenizing may take hours. */
static strait_err check_output(const strait_tokenize_spec *spec) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(check_input(spec, spec->tokenizer_path));
    for (int i = 0; i < spec->text.n_paths; i++)
        STRAIT_TRY(check_input(spec, spec->text.paths[i]));
    STRAIT_TRY(strait_corpus_writer_find_existing(spec->out, path));
    if (!spec->keeps_old || path[0] == '\0') return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EEXISTS,
                       "%s already exists: choose another name, or ask to replace the corpus",
                       path);
}

static strait_err start_job(struct job *job) {
    STRAIT_TRY(
        strait_corpus_writer_init(&job->output, job->spec->out, job->spec->shard_tokens > 0));
    STRAIT_TRY(strait_alloc((size_t)job->n_workers, sizeof(struct strait_encoder *), "encoders",
                            (void **)&job->encoders));
    for (int i = 0; i < job->n_workers; i++)
        STRAIT_TRY(strait_encoder_open(job->spec->tokenizer, &job->encoders[i]));
    return STRAIT_OK;
}

/* ChatML's marks are single tokens where the tokenizer has them; elsewhere they would be spelled
 * out letter by letter. */
static const char *default_template(const struct strait_tokenizer *tokenizer) {
    static const char mark[] = "<|im_start|>";
    return strait_tokenizer_find(tokenizer, mark, sizeof mark - 1) >= 0 ? strait_chat_chatml
                                                                        : strait_chat_plain;
}

static strait_err run_job(struct job *job) {
    const strait_tokenize_spec *spec = job->spec;
    const char *shape = spec->text.chat_template != NULL ? spec->text.chat_template
                                                         : default_template(spec->tokenizer);
    STRAIT_TRY(strait_chat_check_template(shape));
    STRAIT_TRY(check_output(spec));
    STRAIT_TRY(start_job(job));
    strait_chunks_spec chunks = {.text = spec->text,
                                 .n_threads = job->n_workers,
                                 .work = encode_chunk,
                                 .after = write_chunk,
                                 .arg = job};
    chunks.text.chat_template = shape;
    chunks.piece_bytes = strait_tokenizer_can_split_lines(spec->tokenizer) ? PIECE_BYTES : 0;
    STRAIT_TRY(strait_chunks_run(&chunks));
    if (job->counts.tokens == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: the input files contain no text", spec->out);
    if (job->writer != NULL) STRAIT_TRY(end_shard(job));
    job->counts.shards = (int64_t)job->n_shards;
    for (int i = 0; i < job->n_workers; i++)
        job->counts.dropped += strait_encoder_dropped(job->encoders[i]);
    STRAIT_TRY(write_manifest(job));
    return strait_corpus_writer_publish(&job->output, job->counts.shards);
}

strait_err strait_tokenize_run(const strait_tokenize_spec *spec, strait_tokenize_counts *out) {
    struct job job = {.spec = spec, .n_workers = strait_chunks_workers(spec->n_threads)};
    strait_err err = run_job(&job);
    if (err == STRAIT_EINTERRUPTED)
        err = STRAIT_FAIL(STRAIT_EINTERRUPTED, "%s: stopped; nothing was kept", spec->out);
    if (err == STRAIT_OK) *out = job.counts;
    strait_shard_writer_close(&job.writer);
    for (int i = 0; job.encoders != NULL && i < job.n_workers; i++)
        strait_encoder_close(&job.encoders[i]);
    strait_alloc_free(job.encoders);
    for (size_t i = 0; i < job.n_shards; i++)
        strait_alloc_free((void *)job.shards[i].path);
    strait_alloc_free(job.shards);
    strait_corpus_writer_fini(&job.output);
    return err;
}
