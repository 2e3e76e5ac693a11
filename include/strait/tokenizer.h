/* tokenizer.h - text to token ids and back, by byte-pair encoding; and training a tokenizer.
 *
 *     struct strait_tokenizer *tokenizer = NULL;
 *     struct strait_encoder *encoder = NULL;
 *     strait_tokenizer_open("tokenizer.json", &tokenizer);
 *     strait_encoder_open(tokenizer, &encoder);
 *     strait_encoder_encode(encoder, text, n, 0, &ids, &n_ids);
 *     strait_encoder_close(&encoder);
 *     strait_tokenizer_close(&tokenizer);
 *
 * Reads the tokenizer.json of Hugging Face with a BPE model: GPT-2, LLaMA, Qwen, Gemma and what
 * strait_tokenizer_train writes. A file with a setting that this version does not implement is
 * refused with the name of the key; nothing is ignored. docs/formats.md lists what is implemented.
 *
 * A tokenizer does not change after it is opened: any number of threads may share it. Each thread
 * encodes with an encoder of its own. */
#pragma once

#include <strait/error.h>
#include <strait/text.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_tokenizer;

/* Reads a tokenizer.json. STRAIT_EIO: it cannot be read. STRAIT_EDATA: it is not one that this
 * version implements; the detail names the file and the key. */
STRAIT_API strait_err strait_tokenizer_open(const char *path, struct strait_tokenizer **out);

/* Releases a tokenizer, after the encoders that use it. Sets *tokenizer to NULL; accepts NULL in
 * it. */
STRAIT_API void strait_tokenizer_close(struct strait_tokenizer **tokenizer);

/* One more than the largest id: the smallest vocabulary of a model for it. */
STRAIT_API int32_t strait_tokenizer_vocab(const struct strait_tokenizer *tokenizer);

/* How many ids have a token; ids without one decode to nothing. */
STRAIT_API int32_t strait_tokenizer_count(const struct strait_tokenizer *tokenizer);

/* 32 hexadecimal digits that change with anything that changes ids. Borrowed until close. */
STRAIT_API const char *strait_tokenizer_fingerprint(const struct strait_tokenizer *tokenizer);

/* The id of a token: an added token by its text, any other by its bytes. -1 if there is none. */
STRAIT_API int32_t strait_tokenizer_find(const struct strait_tokenizer *tokenizer,
                                         const void *bytes, size_t n);

/* The bytes of a token and their number in *n, borrowed until close; NULL for an id outside the
 * vocabulary. */
STRAIT_API const unsigned char *strait_tokenizer_bytes(const struct strait_tokenizer *tokenizer,
                                                       int32_t id, size_t *n);

/* Whether the id is of a special token, such as the end of text. */
STRAIT_API int strait_tokenizer_is_special(const struct strait_tokenizer *tokenizer, int32_t id);

/* The token that ends a document: the first that exists of <|endoftext|>, <|end_of_text|>, </s> and
 * <eos>; -1 if none does. */
STRAIT_API int32_t strait_tokenizer_end(const struct strait_tokenizer *tokenizer);

/* Whether a long text may be split after a line and encoded in parts, for several threads, without
 * changing an id. */
STRAIT_API int strait_tokenizer_can_split_lines(const struct strait_tokenizer *tokenizer);

/* Decodes ids into text with a zero after its last byte; *n_bytes does not count it. Ids outside
 * the vocabulary decode to nothing. The caller frees *out with strait_free. */
STRAIT_API strait_err strait_tokenizer_decode(const struct strait_tokenizer *tokenizer,
                                              const int32_t *ids, size_t n, char **out,
                                              size_t *n_bytes);

struct strait_encoder;

enum {
    STRAIT_ENCODE_TEMPLATE = 1 // put the tokens of the file's template around the text
};

/* Opens an encoder, for one thread at a time. It uses `tokenizer` until close. */
STRAIT_API strait_err strait_encoder_open(const struct strait_tokenizer *tokenizer,
                                          struct strait_encoder **out);
STRAIT_API void strait_encoder_close(struct strait_encoder **encoder); // accepts NULL in *encoder

/* Encodes text of any bytes, up to 2 GiB. *ids are borrowed until the encoder's next call.
 *
 * Special tokens written in the text become their ids. Bytes that are not UTF-8 are words of their
 * own: a byte-level or byte-fallback tokenizer keeps them, so that decoding restores them; any
 * other tokenizer replaces them by U+FFFD. */
STRAIT_API strait_err strait_encoder_encode(struct strait_encoder *encoder, const void *text,
                                            size_t n, unsigned options, const int32_t **ids,
                                            size_t *n_ids);

/* How many characters this encoder dropped so far, because they have no token and the tokenizer has
 * no unknown token. */
STRAIT_API int64_t strait_encoder_dropped(const struct strait_encoder *encoder);

/* How far training a tokenizer is. */
typedef struct strait_tokenizer_progress {
    int is_learning;     // 0: still counting the words of the text
    int64_t done, total; // bytes of the files, then tokens; total 0: unknown
} strait_tokenizer_progress;

typedef struct strait_tokenizer_train_spec {
    strait_text_spec text;
    int32_t vocab;       // ids, including the 256 bytes and the special tokens
    const char *pattern; // how text is split into words: "gpt2" or "llama3"; NULL: gpt2
    const char *const *specials;
    int n_specials;
    int n_threads;       // 0: one per core
    int64_t limit_bytes; // learn from about this many bytes of text; 0: all
    void (*progress)(void *arg, const strait_tokenizer_progress *progress); // may be NULL
    void *arg;
} strait_tokenizer_train_spec;

/* Learns a byte-level BPE tokenizer and writes a tokenizer.json to `path`. Special tokens come
 * first, then the bytes in the order of their characters in the file, then merges, the most
 * frequent pair first and of equals the one with the smaller ids. The same text gives the same
 * file, whatever the number of threads and the order of the files. Pairs that occur once are not
 * merged, so *n_tokens may be less than spec->vocab. `progress` is called from the calling thread.
 */
STRAIT_API strait_err strait_tokenizer_train(const strait_tokenizer_train_spec *spec,
                                             const char *path, int32_t *n_tokens);

#ifdef __cplusplus
}
#endif
