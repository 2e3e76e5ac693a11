/* relay_request.c - what the relay does with a request: refuses it, pairs its sender, or lets it
 * wait for its peer. */
#include "net/relay/relay_state.h"

/* Compares with every waiting connection even after a match, so that the time does not reveal which
 * tokens are waiting. */
static struct strait_relay_conn *find_peer(const struct strait_relay_conn *conn) {
    struct strait_relay_conn *found = NULL;
    for (struct strait_relay_conn *s = conn->relay->lists[STRAIT_RELAY_WAITING].first; s != NULL;
         s = s->next) {
        const int is_same = strait_relay_token_equal(&s->token, &conn->token);
        if (is_same && s->role != conn->role) found = s; // the latest is most likely to be alive
    }
    return found;
}

static void report(const struct strait_relay *relay) {
    if (relay->config.peer_refused != NULL) relay->config.peer_refused(relay->config.user);
}

/* Reports each refused version once: anyone can send requests, and the log must stay readable. */
static void report_version(struct strait_relay *relay, unsigned char version) {
    unsigned char *bits = &relay->refused_versions[version / 8];
    const int is_known = (*bits >> version % 8 & 1) != 0;
    *bits |= (unsigned char)(1 << version % 8);
    if (!is_known) report(relay);
}

/* A relay without memory does not know whether the token is good: its sender connects again. */
static strait_relay_status check_secret(struct strait_relay *relay,
                                        const strait_relay_token *token) {
    if (relay->config.secret == NULL) return STRAIT_RELAY_OK;
    const strait_err err = strait_relay_secret_check(&relay->secret, token);
    if (err == STRAIT_OK) return STRAIT_RELAY_OK;
    if (err != STRAIT_EAUTH) return STRAIT_RELAY_FULL;
    if (!relay->has_denied) report(relay);
    relay->has_denied = 1;
    return STRAIT_RELAY_DENIED;
}

void strait_relay_request_received(struct strait_relay_conn *conn) {
    struct strait_relay *relay = conn->relay;
    const strait_err err = strait_relay_request_unpack(conn->request, &conn->role, &conn->token);
    if (err == STRAIT_ENOTSUP) report_version(relay, strait_relay_request_version(conn->request));
    const strait_relay_status status = err == STRAIT_OK ? check_secret(relay, &conn->token)
                                                        : STRAIT_RELAY_BAD_REQUEST;
    if (status != STRAIT_RELAY_OK) {
        strait_relay_refuse(conn, status);
        return;
    }
    struct strait_relay_conn *peer = find_peer(conn);
    if (peer != NULL) {
        strait_relay_pair(peer, conn);
        return;
    }
    strait_relay_set_state(conn, STRAIT_RELAY_WAITING);
    strait_relay_evict(&relay->lists[STRAIT_RELAY_WAITING], relay->config.max_waiting);
}
