/* conn_internal.h - functions shared by the files of conn.h and used by nothing else.
 *
 * Calls go one way: conn.c uses conn_send.c and conn_rendezvous.c, and all three use conn_abort.c.
 * conn_send.c therefore never calls back into conn.c. */
#pragma once

#include "net/tls/conn.h"

/* conn_abort.c: keeps the first error and its reason; what follows from it is ignored. */
void strait_conn_set_reason(struct strait_conn *c, strait_err why);

/* conn_send.c: moves ciphertext that TLS has produced into the send buffer, where it was ready to
 * be sent at `ready_ns`; strait_conn_pump sends it. */
void strait_conn_collect_ciphertext(struct strait_conn *c, int64_t ready_ns);

/* conn_rendezvous.c: sends our token and role to the relay. STRAIT_ECLOSED. */
strait_err strait_conn_send_relay_request(struct strait_conn *c);
/* conn_rendezvous.c: reads the relay's answer. STRAIT_OK when the peer is there, STRAIT_EAGAIN
 * while the answer is incomplete or when the peer did not come (then n_reply is the whole reply).
 */
strait_err strait_conn_read_relay_reply(struct strait_conn *c);
