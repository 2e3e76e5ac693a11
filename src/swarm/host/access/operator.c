/* operator.c - answers the requests of the operator, between two polls of the network. */
#include "swarm/host/access/operator.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/local_socket.h"
#include "swarm/host/state.h"
#include "swarm/host/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PREFIX_LEAST = 8, // digits of a key, so that a short name is not taken for one
    KICK_S = 60       // if the request does not say
};

/* ---- which worker ---- */

static int is_match(const struct host_key *key, const char *target) {
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(&key->key, text);
    const size_t n = strlen(target);
    return strcmp(key->name, target) == 0 || (n >= PREFIX_LEAST && strncmp(text, target, n) == 0);
}

/* Names are chosen by the workers and need not be unique: a target must match one key only. */
static strait_err find_target(struct host *h, const char *target, int is_banned,
                              struct host_key **out) {
    int n = 0;
    for (int i = 0; i < h->admission.n_keys; i++) {
        struct host_key *key = &h->admission.keys[i];
        if (key->is_banned != is_banned || !is_match(key, target)) continue;
        n++;
        *out = key;
    }
    if (n == 0)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "no %sworker has the name or key '%s': see \"strait swarm status\"",
                           is_banned ? "banned " : "", target);
    if (n > 1)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "%d workers have the name or key '%s': give more digits "
                           "of the key",
                           n, target);
    return STRAIT_OK;
}

static struct connection *connection_of(struct host *h, const struct host_key *key) {
    return strait_host_connection(h, strait_coordinator_find(&h->coordinator, &key->key));
}

/* ---- answers ---- */

/* jansson returns NULL without memory, and packs and appends NULL to NULL: the one check is where
 * the answer becomes text. */
static json_t *success(void) {
    return json_pack("{sb}", "ok", 1);
}

static json_t *failure(void) {
    return json_pack("{sb ss}", "ok", 0, "error", strait_err_detail());
}

static json_t *answer_line(const char *line, uint32_t id) {
    return json_pack("{sb ss sI}", "ok", 1, "invite", line, "id", (json_int_t)id);
}

static json_t *list_banned(const struct host *h) {
    json_t *all = json_array();
    for (int i = 0; i < h->admission.n_keys; i++) {
        char text[STRAIT_FINGERPRINT_TEXT];
        strait_fingerprint_text(&h->admission.keys[i].key, text);
        if (h->admission.keys[i].is_banned)
            (void)json_array_append_new(
                all, json_pack("{ss ss}", "name", h->admission.keys[i].name, "key", text));
    }
    return all;
}

static json_t *answer_status(struct host *h) {
    static strait_status status; // large
    const strait_host_status now = strait_host_status_now(h);
    strait_status_collect(&now, &status);
    json_t *object = strait_status_pack(&status);
    (void)json_object_set_new(object, "ok", json_true());
    (void)json_object_set_new(object, "banned", list_banned(h));
    return object;
}

static json_t *pack_invite(uint32_t id, uint32_t uses, uint32_t n_used, uint64_t expires) {
    return json_pack("{sI sI sI sI}", "id", (json_int_t)id, "uses", (json_int_t)uses, "used",
                     (json_int_t)n_used, "expires", (json_int_t)expires);
}

static json_t *list_invites(const struct host *h) {
    json_t *all = json_array();
    (void)json_array_append_new(
        all, pack_invite(0, h->invite.uses, h->admission.n_used, h->invite.expires));
    for (int i = 0; i < STRAIT_HOST_INVITES; i++) {
        const struct host_invite *invite = &h->admission.invites[i];
        if (invite->id != 0)
            (void)json_array_append_new(
                all, pack_invite(invite->id, invite->uses, invite->n_used, invite->expires));
    }
    return json_pack("{sb so}", "ok", 1, "invites", all);
}

/* ---- commands ---- */

/* Not on record: a restarted host admits a worker that was kicked. */
static strait_err kick(struct host *h, const strait_operator_request *request) {
    struct host_key *key = NULL;
    const double seconds = request->seconds > 0.0 ? request->seconds : KICK_S;
    STRAIT_TRY(find_target(h, request->target, 0, &key));
    struct connection *connection = connection_of(h, key);
    key->kicked_until_ns = strait_clock_ns() + (int64_t)(seconds * 1e9);
    strait_host_note(h, "operator: worker %s may not join for %.0f s", key->name, seconds);
    if (connection != NULL)
        strait_host_disconnect(h, connection, STRAIT_ECLOSED, "removed by the operator");
    return STRAIT_OK;
}

/* On record before the worker learns of it: it must not find a restarted host that has forgotten.
 */
static strait_err ban(struct host *h, const strait_operator_request *request) {
    struct host_key *key = NULL;
    STRAIT_TRY(find_target(h, request->target, 0, &key));
    struct connection *connection = connection_of(h, key);
    STRAIT_TRY(strait_host_ban(h, &key->key));
    strait_host_note(h, "operator: worker %s is banned", key->name);
    if (connection != NULL) strait_host_refuse(h, connection, "banned by the operator");
    return STRAIT_OK;
}

static strait_err unban(struct host *h, const strait_operator_request *request) {
    struct host_key *key = NULL;
    STRAIT_TRY(find_target(h, request->target, 1, &key));
    STRAIT_TRY(strait_host_unban(h, key));
    strait_host_note(h, "operator: worker %s is not banned any more", key->name);
    return STRAIT_OK;
}

static strait_err rotate(struct host *h, char line[STRAIT_INVITE_TEXT]) {
    STRAIT_TRY(strait_host_rotate_token(h, line));
    strait_host_note(h, "operator: the first invite was replaced; workers that joined stay");
    return STRAIT_OK;
}

static strait_err invite(struct host *h, const strait_operator_request *request, uint32_t *id,
                         char line[STRAIT_INVITE_TEXT]) {
    struct host_invite *made = NULL;
    const uint64_t expires = request->seconds > 0.0
                                 ? (uint64_t)time(NULL) + 1 + (uint64_t)request->seconds
                                 : 0;
    STRAIT_TRY(strait_host_make_invite(h, request->uses, expires, &made, line));
    *id = made->id;
    strait_host_note(h, "operator: invite %u was made", made->id);
    return STRAIT_OK;
}

static strait_err revoke(struct host *h, const strait_operator_request *request) {
    STRAIT_TRY(strait_host_revoke_invite(h, request->id));
    strait_host_note(h, "operator: invite %u was revoked", request->id);
    return STRAIT_OK;
}

static json_t *execute(struct host *h, const char *text) {
    strait_operator_request request;
    char line[STRAIT_INVITE_TEXT] = "";
    uint32_t id = 0;
    strait_err err = strait_operator_parse(text, &request);
    if (err != STRAIT_OK) return failure();
    switch (request.kind) {
    case STRAIT_OPERATOR_STATUS: return answer_status(h);
    case STRAIT_OPERATOR_INVITES: return list_invites(h);
    case STRAIT_OPERATOR_KICK: err = kick(h, &request); break;
    case STRAIT_OPERATOR_BAN: err = ban(h, &request); break;
    case STRAIT_OPERATOR_UNBAN: err = unban(h, &request); break;
    case STRAIT_OPERATOR_REVOKE: err = revoke(h, &request); break;
    case STRAIT_OPERATOR_ROTATE: err = rotate(h, line); break;
    case STRAIT_OPERATOR_INVITE: err = invite(h, &request, &id, line); break;
    default: break;
    }
    if (err != STRAIT_OK) return failure();
    return line[0] != '\0' ? answer_line(line, id) : success();
}

/* Copied, because jansson's text does not come from strait_alloc. */
static char *answer(void *user, const char *request) {
    json_t *object = execute(user, request);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    char *copy = NULL;
    if (text != NULL && strait_alloc_string(text, &copy) != STRAIT_OK) copy = NULL;
    free(text);
    json_decref(object);
    return copy;
}

void strait_host_open_operator(struct host *h) {
    const strait_err err = strait_local_open(h->spec->folder, STRAIT_OPERATOR_SOCKET,
                                             &h->operator_socket);
    if (err != STRAIT_OK)
        strait_host_note(h, "\"strait swarm\" cannot reach this host: %s", strait_err_detail());
}

void strait_host_serve_operator(struct host *h) {
    strait_local_serve(h->operator_socket, answer, h);
}
