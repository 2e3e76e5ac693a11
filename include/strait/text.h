/* text.h - documents from text files, one after the other.
 *
 * A plain file is one document. In a JSON Lines file (.jsonl, .ndjson) every line is one: an object
 * with the text under a chosen key. Files may be compressed with gzip, xz or zstd, which their
 * first bytes show; "-" is standard input. */
#pragma once

#include <strait/error.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strait_text_format {
    STRAIT_TEXT_AUTO, // by the file's name; standard input is plain unless `field` is set
    STRAIT_TEXT_PLAIN,
    STRAIT_TEXT_JSONL,
    STRAIT_TEXT_CHAT, // JSON Lines of fine-tuning data: "prompt" and "completion", or "messages"
} strait_text_format;

/* A question asked while files are read, also while reading blocks: should it stop? May be called
 * from any thread. Zeroed: never. */
typedef struct strait_input_stop {
    int (*is_asked)(void *arg);
    void *arg;
} strait_input_stop;

/* Which documents to read. Everything is borrowed until the call that takes it returns. */
typedef struct strait_text_spec {
    const char *const *paths;
    int n_paths;
    strait_text_format format;
    const char *field;         // the key of JSON Lines; NULL: "text"
    const char *chat_template; // a message as text: "{role}: {content}\n"; NULL: one that suits
    strait_input_stop stop;
} strait_text_spec;

/* Reads one document of `n` bytes, which are valid during the call. An error ends the visit. */
typedef strait_err (*strait_text_visitor)(void *user, const void *text, size_t n);

/* Calls `visit` with every document, in the order of the files; empty documents are skipped.
 * STRAIT_EIO, STRAIT_EDATA: a file cannot be read or is damaged; the detail names the file and,
 * for JSON Lines, the line. STRAIT_EINTERRUPTED: spec->stop asked for it. Otherwise the error of
 * `visit`. Any thread; `visit` is called from the thread of the caller. */
STRAIT_API strait_err strait_text_visit(const strait_text_spec *spec, strait_text_visitor visit,
                                        void *user);

#ifdef __cplusplus
}
#endif
