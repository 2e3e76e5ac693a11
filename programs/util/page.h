/* page.h - the page of a running run, beside its progress log. Every function accepts NULL for a
 * run without a page and then does nothing. */
#pragma once

#include <strait/session.h>

#include "progress_log.h"

#include <jansson.h>

struct strait_page;

/* What the flags of a command chose. */
typedef struct strait_page_choice {
    const char *address, *token_file; // NULL: metrics.page of the run; none
} strait_page_choice;

extern strait_page_choice strait_page_chosen;

/* The rows that a command which trains adds to its table of flags. */
#define STRAIT_PAGE_FLAGS                                                                          \
    {"page",                                                                                       \
     0,                                                                                            \
     STRAIT_FLAG_TEXT,                                                                             \
     &strait_page_chosen.address,                                                                  \
     "HOST:PORT",                                                                                  \
     "serve a page about the run, JSON and Prometheus' /metrics there (docs/page.md)"},            \
    {                                                                                              \
        "page-token", 0, STRAIT_FLAG_TEXT, &strait_page_chosen.token_file, "FILE",                 \
            "the token that readers of the page need is in FILE (default off loopback: a new one)" \
    }

/* The first line of a file that a flag names, so that a token is in no list of processes. The
 * caller frees it with strait_alloc_free. */
strait_err strait_page_read_token(const char *flag, const char *path, char **out);

/* Opens the page that the flags or the run ask for, and says where it is; *out is NULL if they ask
 * for none. Borrows `log`. STRAIT_ECONFIG: it cannot be served there; the detail names the flag or
 * key. */
strait_err strait_page_open(const struct strait_run *run, strait_progress_log *log,
                            struct strait_page **out);
/* Tells readers how the run ended. */
void strait_page_close(struct strait_page **page, strait_err err);

/* The callbacks of the log, which also publish. */
strait_session_events strait_page_events(struct strait_page *page, strait_progress_log *log);

void strait_page_noted(struct strait_page *page, const char *text);
/* The state of a swarm; takes the reference. */
void strait_page_swarm(struct strait_page *page, json_t *swarm);
