/* local_socket.h - requests to a program from others of the same user on the same machine.
 *
 * The program listens on a Unix socket in a folder, which only its own user may open (mode 600) and
 * whose callers' user the kernel tells. A request is one line of text, and so is its answer; each
 * has a connection of its own. One thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>

enum {
    STRAIT_LOCAL_REQUEST_MAX = 4096,   // bytes of a request, with its line end
    STRAIT_LOCAL_ANSWER_MAX = 1 << 20, // and of an answer
    STRAIT_LOCAL_WAIT_MS = 500         // the longest that a server waits for a slow caller
};

struct strait_local_server;

/* Listens on FOLDER/NAME and replaces a socket that an earlier process left there. STRAIT_EIO. */
strait_err strait_local_open(const char *folder, const char *name,
                             struct strait_local_server **out);
/* Removes the socket, unless another process has replaced it; accepts NULL. */
void strait_local_close(struct strait_local_server **server);

/* Answers a request, a line without its end. The answer is a line without its end, allocated with
 * strait_alloc, which strait_local_serve frees; NULL: there is no memory for one. */
typedef char *strait_local_answer(void *user, const char *request);

/* Answers the callers that are waiting, one at a time; does not wait for others. Callers of other
 * users, except root, are disconnected. */
void strait_local_serve(struct strait_local_server *server, strait_local_answer *answer,
                        void *user);

/* Sends a request and waits for the answer, at most timeout_ms; the caller frees it with
 * strait_alloc_free. STRAIT_ECLOSED: nobody listens there. */
strait_err strait_local_ask(const char *folder, const char *name, const char *request,
                            int timeout_ms, char **out);
