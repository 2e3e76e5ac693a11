/* operator.h - what the operator of a run can ask its running host: `strait swarm`.
 *
 * The host listens on FOLDER/operator.sock (net/core/local_socket.h), which only its own user may
 * open. A request is a JSON object in one line, {"command": "kick", "target": "w1", "seconds": 60},
 * and so is the answer: {"ok": true, ...} or {"ok": false, "error": "..."}. docs/operating.md lists
 * both. */
#pragma once

#include "base/json.h"
#include "net/core/identity.h"

#define STRAIT_OPERATOR_SOCKET "operator.sock"

typedef enum strait_operator_kind {
    STRAIT_OPERATOR_STATUS,
    STRAIT_OPERATOR_KICK,    // target, seconds: disconnect it and do not admit it for that long
    STRAIT_OPERATOR_BAN,     // target: for the rest of the run
    STRAIT_OPERATOR_UNBAN,   // target
    STRAIT_OPERATOR_ROTATE,  // replace the token of the first invite
    STRAIT_OPERATOR_INVITE,  // uses, seconds: make a further invite, valid that long; 0: no limit
    STRAIT_OPERATOR_INVITES, // list them
    STRAIT_OPERATOR_REVOKE,  // id: of a further invite
    STRAIT_OPERATOR_KINDS
} strait_operator_kind;

typedef struct strait_operator_request {
    strait_operator_kind kind;
    char target[STRAIT_FINGERPRINT_TEXT]; // a worker's name, or the first digits of its key
    double seconds;
    uint32_t uses, id;
} strait_operator_request;

/* Returns the request as JSON text, which the caller frees with free(); NULL: no memory. */
char *strait_operator_format(const strait_operator_request *request);
/* STRAIT_ECONFIG says what is wrong with a request. */
strait_err strait_operator_parse(const char *text, strait_operator_request *out);

struct host;
/* Begins to listen; a host that cannot does without and says so. */
void strait_host_open_operator(struct host *h);
/* Answers the requests that are waiting. Not from within an event of the transport. */
void strait_host_serve_operator(struct host *h);
