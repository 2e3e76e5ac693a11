/* listen.h - an HTTP daemon: where it listens, whom it admits, and what its page may load. Shared
 * by the page of a run and by the server of a model (serve/). */
#pragma once

#include "base/error.h"
#include "monitor/connections.h"

#include <microhttpd.h>
#include <stddef.h>

enum {
    STRAIT_LISTENER_TOKEN = 128, // bytes of a token, with its zero
    STRAIT_LISTENER_IDLE_S = 30, // after which a connection that neither reads nor writes is closed
    STRAIT_LISTENER_HEADER_S = 60 // that the header of a request may take as a whole
};

/* A daemon that listens. Zeroed is closed; must not move while it runs. */
struct strait_listener {
    struct MHD_Daemon *daemon;
    char token[STRAIT_LISTENER_TOKEN]; // empty: none is needed
    char policy[512];                  // Content-Security-Policy
    char url[2 * STRAIT_LISTENER_TOKEN + 64];
    struct strait_connections connections;
    MHD_RequestCompletedCallback completed; // of the spec, and its user
    void *user;
};

typedef struct strait_listener_spec {
    const char *address;    // HOST:PORT
    const char *token;      // NULL: off loopback one is drawn, on it none is needed
    const char *page;       // the html that the policy is for: its script and its style
    unsigned flags;         // of the daemon, besides epoll and suspending
    unsigned n_connections; // beyond them the one that waits longest for a request is closed
    double header_s;        // that a header may take; 0, or more: STRAIT_LISTENER_HEADER_S
    MHD_AccessHandlerCallback answer;
    MHD_RequestCompletedCallback completed; // or NULL
    void *user;                             // of both
} strait_listener_spec;

/* Starts the daemon, and sets token, policy and url. STRAIT_ECONFIG: the address cannot be listened
 * on, or the token has other characters than a token may have. The caller closes it, also after an
 * error, and calls strait_connections_expire(&listener->connections) now and then. */
strait_err strait_listener_open(struct strait_listener *listener, const strait_listener_spec *spec);
void strait_listener_close(struct strait_listener *listener);

/* 0 if the request may be answered, else MHD_HTTP_UNAUTHORIZED: it needs a token, or
 * MHD_HTTP_FORBIDDEN: without a token, it must name a host of loopback. */
unsigned strait_listener_refuses(const struct strait_listener *listener,
                                 struct MHD_Connection *connection);

/* Adds the headers of every answer and queues it. Takes the response; NULL closes the connection.
 */
enum MHD_Result strait_listener_reply(const struct strait_listener *listener,
                                      struct MHD_Connection *connection, unsigned code,
                                      const char *type, struct MHD_Response *response);
