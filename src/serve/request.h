/* request.h - what a client asks for: the body of /v1/completions and /v1/chat/completions,
 * checked.
 *
 * A body is JSON as OpenAI's API has it. What this server cannot do (several answers at once,
 * log-probabilities) is an error; other keys that it does not know are ignored. */
#pragma once

#include "base/json.h"
#include "infer/completion.h"
#include "infer/engine.h"

enum {
    STRAIT_SERVE_TOKENS_MAX = 65536 // that a request may ask for
};

/* Zeroed is closed. */
typedef struct strait_serve_ask {
    json_t *body;           // owns the texts; after drop_prompt only its stop strings
    const char *prompt;     // of a completion; NULL in a chat
    const json_t *messages; // of a chat; NULL otherwise
    const char *model;      // NULL: any
    const char *stops[STRAIT_STOPS_MAX];
    int n_stops;
    int64_t n_tokens;
    strait_sampling sampling; // its seed is set if has_seed
    int has_seed, ignores_end, streams, wants_usage;
} strait_serve_ask;

/* Parses a body of n bytes. STRAIT_EDATA: it is not JSON or lacks something; STRAIT_ECONFIG: a
 * value is out of its bounds; STRAIT_ENOTSUP: it asks for what this server cannot do. The detail is
 * for the client. Close it also after an error. */
strait_err strait_serve_ask_parse(const char *body, size_t n, int is_chat, strait_serve_ask *out);
/* Releases what only the encoding of the prompt needs, which may be most of a body: prompt,
 * messages and model are NULL then. Stop strings stay. */
void strait_serve_ask_drop_prompt(strait_serve_ask *ask);
void strait_serve_ask_close(strait_serve_ask *ask);
