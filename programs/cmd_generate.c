/* cmd_generate.c - strait generate DIR --prompt TEXT */
#include "base/alloc.h"
#include "base/rng.h"
#include "commands.h"
#include "data/decoder.h"
#include "data/encoder.h"
#include "infer/trained_model.h"
#include "model/token_sampler.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *prompt = "", *tokenizer_path;
static int64_t n_tokens = 100, seed = 1, top_k, threads;
static double temperature = 0.8, top_p = 1.0;
static int keeps_going, hides_prompt;

static const strait_flag flags[] = {
    {"prompt", 'p', STRAIT_FLAG_TEXT, &prompt, "TEXT", "what the text begins with"},
    {"tokens", 'n', STRAIT_FLAG_INT, &n_tokens, "N", "how many tokens to add (default 100)"},
    {"temperature", 't', STRAIT_FLAG_REAL, &temperature, "T",
     "0 takes the likeliest, 1 the model's own odds (default 0.8)"},
    {"top-k", 0, STRAIT_FLAG_INT, &top_k, "K", "choose among the K likeliest (default: all)"},
    {"top-p", 0, STRAIT_FLAG_REAL, &top_p, "P",
     "choose among the likeliest that together reach P (default 1)"},
    {"seed", 0, STRAIT_FLAG_INT, &seed, "S", "the same seed gives the same text (default 1)"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &tokenizer_path, "FILE",
     "tokenizer.json (default: the run folder's)"},
    {"keep-going", 0, STRAIT_FLAG_SWITCH, &keeps_going, NULL,
     "do not stop at the end-of-text token"},
    {"no-prompt", 0, STRAIT_FLAG_SWITCH, &hides_prompt, NULL, "print only what was added"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "0: one for each core"},
    {0},
};

/* All that speaking needs, opened together and closed together. */
struct speaker {
    struct strait_trained_model *trained;
    struct strait_encoder *encoder;
    struct strait_token_sampler *chooser;
    strait_decoder decoder;
    unsigned char *text; // room for what one token decodes to
    int32_t *ids;        // everything so far, to slide the window when the context is full
    int64_t n_ids;
};

static void speaker_fini(struct speaker *s) {
    strait_token_sampler_close(&s->chooser);
    strait_encoder_close(&s->encoder);
    strait_trained_model_close(&s->trained);
    strait_alloc_free(s->text);
    strait_alloc_free(s->ids);
}

static strait_err speaker_init(struct speaker *s, const char *folder) {
    const strait_backend_spec backend = {.name = "cpu", .n_threads = (int)threads};
    const strait_token_sampler_params how = {(float)temperature, top_k, (float)top_p};
    STRAIT_TRY(strait_trained_model_open(folder, tokenizer_path, backend, 0, &s->trained));
    if (s->trained->skipped[0] != '\0') fprintf(stderr, "note: %s\n", s->trained->skipped);
    if (s->trained->tokenizer == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s has no tokenizer.json beside it: name one with --tokenizer FILE",
                           s->trained->path);
    STRAIT_TRY(strait_token_sampler_open(s->trained->plan.shape.vocab, how, &s->chooser));
    STRAIT_TRY(strait_encoder_open(s->trained->tokenizer, &s->encoder));
    strait_decoder_init(&s->decoder, s->trained->tokenizer);
    return strait_alloc(strait_decoder_bound(s->trained->tokenizer) + 1, 1, "text",
                        (void **)&s->text);
}

static strait_err speak(struct speaker *s, int32_t id, int is_hidden) {
    const size_t n = strait_decoder_push(&s->decoder, id, s->text);
    if (is_hidden) return STRAIT_OK; // the decoder had to hear it: what follows depends on it
    if (fwrite(s->text, 1, n, stdout) != n || fflush(stdout) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "cannot write the text: %s", strerror(errno));
    return STRAIT_OK;
}

/* The prompt's ids; an empty prompt begins after an end of text. */
static strait_err begin(struct speaker *s) {
    const int32_t *ids = NULL;
    size_t n = 0;
    STRAIT_TRY(strait_encoder_encode(s->encoder, prompt, strlen(prompt), 0, &ids, &n));
    STRAIT_TRY(strait_alloc(n + (size_t)n_tokens + 1, sizeof *s->ids, "ids", (void **)&s->ids));
    const int32_t end = strait_tokenizer_end(s->trained->tokenizer);
    if (n == 0) s->ids[s->n_ids++] = end >= 0 ? end : 0;
    for (size_t i = 0; i < n; i++) {
        s->ids[s->n_ids++] = ids[i];
        STRAIT_TRY(speak(s, ids[i], hides_prompt));
    }
    return STRAIT_OK;
}

/* Feeds ids [from, n_ids); the logits are those after the last. A full context starts again with
 * its newer half. */
static strait_err loader(struct speaker *s, int64_t from, const float **logits) {
    const int64_t context = s->trained->plan.shape.context;
    if (s->n_ids - from + strait_staged_model_position(s->trained->chain) > context) {
        strait_staged_model_reset(s->trained->chain);
        from = s->n_ids - (context + 1) / 2;
        if (from < 0) from = 0;
    }
    for (int64_t i = from; i < s->n_ids; i++)
        STRAIT_TRY(strait_staged_model_feed(s->trained->chain, s->ids[i], logits));
    return STRAIT_OK;
}

static strait_err generate(struct speaker *s) {
    const strait_rng rng = {(uint64_t)seed, strait_rng_stream("generate")};
    const int32_t end = strait_tokenizer_end(s->trained->tokenizer);
    int64_t fed = 0;
    STRAIT_TRY(begin(s));
    for (int64_t i = 0; i < n_tokens; i++) {
        const float *logits = NULL;
        STRAIT_TRY(loader(s, fed, &logits));
        fed = s->n_ids;
        const int32_t id = strait_token_sampler_pick(s->chooser, logits,
                                                     strait_rng_uniform(rng, (uint64_t)i));
        if (id == end && !keeps_going) break;
        s->ids[s->n_ids++] = id;
        STRAIT_TRY(speak(s, id, 0));
    }
    (void)fwrite(s->text, 1, strait_decoder_finish(&s->decoder, s->text), stdout);
    putchar('\n');
    return STRAIT_OK;
}

static strait_err run_generate(int n_words, const char **words) {
    STRAIT_TRY(strait_args_one_word(&strait_cmd_generate, "run or checkpoint folder",
                                    "--prompt TEXT is what the text begins with", n_words, words));
    if (n_tokens < 0) return STRAIT_FAIL(STRAIT_ECONFIG, "--tokens must not be negative");
    STRAIT_TRY(strait_args_check_threads(threads));
    struct speaker s;
    memset(&s, 0, sizeof s);
    strait_err err = speaker_init(&s, words[0]);
    if (err == STRAIT_OK) err = generate(&s);
    speaker_fini(&s);
    return err;
}

const strait_command strait_cmd_generate = {
    .name = "generate",
    .usage = "DIR --prompt TEXT [flags]",
    .summary = "sample text from a trained model",
    .about = "Prints the prompt and goes on with it, token by token. DIR is a run's folder, whose\n"
             "newest whole checkpoint is taken, or one checkpoint's. Checkpoints that are damaged\n"
             "are passed over, and that is said.",
    .flags = flags,
    .run = run_generate,
};
