/* serve.h - a trained model over HTTP, with the API of OpenAI: completions, chats, streaming.
 *
 * One thread, libmicrohttpd's, reads requests, checks them and writes answers. The caller's thread
 * computes: it takes requests from a bounded queue into an engine, so that requests are computed
 * together. A request that cannot be served gets an error; none ends the server. docs/serving.md
 * describes the addresses. */
#pragma once

#include "infer/trained_model.h"

struct strait_serve;

typedef struct strait_serve_spec {
    struct strait_trained_model *trained; // with a tokenizer; borrowed until close
    const char *model;                    // its name in the API
    const char *address;                  // HOST:PORT
    const char *token;                    // NULL: off loopback one is drawn
    const char *template;                 // of chats; NULL: ChatML if the tokenizer has it
    int64_t n_sequences;                  // computed at a time
    int64_t n_positions;                  // of a sequence; 0: the model's context
    int64_t n_queued;                     // requests that may wait; more are refused
    double timeout_s;                     // for a request, its wait included
} strait_serve_spec;

/* Listens. STRAIT_ECONFIG: the address or the template is not one. The caller closes it. */
strait_err strait_serve_open(const strait_serve_spec *spec, struct strait_serve **out);
void strait_serve_close(struct strait_serve **serve); // accepts NULL

const char *strait_serve_url(const struct strait_serve *serve); // with the token, if there is one

/* How many requests were answered, refused and left by their clients; how many tokens were drawn.
 */
typedef struct strait_serve_counts {
    int64_t answered, refused, cancelled, tokens;
} strait_serve_counts;

/* Serves until `must_stop` returns 1: then no request is accepted, those that are computed are
 * finished within ten seconds, or until it returns 2. An error is one of the device. */
strait_err strait_serve_run(struct strait_serve *serve, int (*must_stop)(void));
void strait_serve_count(struct strait_serve *serve, strait_serve_counts *out);
