/* mail.h - links made of mails, and the interface of what carries them: a post.
 *
 * Transports that move whole units without a stream (between threads, or by MPI) share one
 * implementation of links, mail_transport.c: handshake, credit, keep-alives, priorities and
 * emulation. A post only moves mails from mailbox to mailbox, in order. Links address each other by
 * id, never by pointer, so a mail to a link that has closed is simply dropped. */
#pragma once

#include "net/core/transport.h"

typedef enum strait_mail_kind {
    STRAIT_MAIL_CONNECT, // a link dials
    STRAIT_MAIL_ACCEPT,  // the answer, from the new link at the other end
    STRAIT_MAIL_MESSAGE,
    STRAIT_MAIL_CREDIT, // a message was received: the sender may send as many bytes again
    STRAIT_MAIL_PING,
    STRAIT_MAIL_PONG,
    STRAIT_MAIL_BYE,
    STRAIT_N_MAIL_KINDS
} strait_mail_kind;

struct strait_mail {
    struct strait_mail *next;
    strait_mail_kind kind;
    int64_t due_ns;         // when it may be received; INT64_MAX: lost
    uint64_t to, from;      // ids of links
    uint64_t reply_to;      // number of the sender's mailbox, in CONNECT and ACCEPT
    struct strait_msg *msg; // MESSAGE
    uint64_t number;        // bytes of CREDIT, sender's clock of PING and PONG
    strait_fingerprint key; // CONNECT and ACCEPT
    strait_hello hello;     // CONNECT and ACCEPT
    strait_bye bye;         // BYE
};

/* Moves mails between mailboxes, which have numbers that are unique among all that can reach each
 * other and are never reused. One thread uses a mailbox, except for wake. */
struct strait_post_ops {
    const char *scheme; // stands for the address of a peer that dialled us
    strait_err (*open)(const strait_transport_config *config, void **out_mailbox);
    void (*close)(void **mailbox); // sends what was given to send, for at most linger_ms
    uint64_t (*number)(void *mailbox);
    /* Gives the mailbox an address that others can dial. STRAIT_EINVAL when it is taken or
     * malformed. */
    strait_err (*bind)(void *mailbox, const char *address, char out[STRAIT_ADDRESS_MAX]);
    /* The number of the mailbox at an address. STRAIT_ECLOSED when it is known that there is none.
     */
    strait_err (*find)(void *mailbox, const char *address, uint64_t *out);
    /* Sends a mail and takes its message on success. One that is due at INT64_MAX is lost on the
     * way, which is a success. STRAIT_ECLOSED when mailbox `to` is closed. */
    strait_err (*send)(void *mailbox, uint64_t to, struct strait_mail *mail);
    /* Waits until `until_ns` for a mail that is due; returns 0 when there was none. */
    int (*receive)(void *mailbox, int64_t until_ns, struct strait_mail *out);
    void (*wake)(void *mailbox); // ends a wait early; any thread
    /* STRAIT_ECLOSED, described, once it is known that mailbox `number` will not answer again.
     * NULL: a silent peer is only noticed by its timeout. */
    strait_err (*check)(void *mailbox, uint64_t number);
};

/* The state of a transport made of mails. Its table has STRAIT_MAIL_TRANSPORT and an `init`
 * that calls strait_mail_init. */
struct strait_mail_transport {
    const struct strait_post_ops *post;
    void *mailbox;
    struct strait_link *links;
};

/* The private part of a link. */
struct strait_mail_link {
    struct strait_link *next;                           // in the transport's list
    uint64_t peer_mailbox;                              // may be closed: the post checks
    uint64_t peer_id;                                   // 0 until opened
    int is_open, is_closing, wants_writable, is_paused; // as in struct strait_multi_link
    strait_bye bye;                                     // why we close it
    struct strait_emulate shaper;
    struct strait_priority_queue out;  // not yet sent
    struct strait_priority_queue held; // received while paused
    size_t in_flight;                  // bytes for which the peer has returned no credit
    int64_t received_ns, pinged_ns, checked_ns, start_ns;
    strait_link_stats stats;
};

/* Opens the mailbox. */
strait_err strait_mail_init(struct strait_transport *t, const struct strait_post_ops *post);

/* See strait_transport_ops. */
void strait_mail_fini(struct strait_transport *t);
strait_err strait_mail_listen(struct strait_transport *t, const char *address,
                              char out[STRAIT_ADDRESS_MAX]);
strait_err strait_mail_dial(struct strait_link *link, const char *address);
strait_err strait_mail_send(struct strait_link *link, struct strait_msg **msg);
void strait_mail_close(struct strait_link *link, strait_err why);
void strait_mail_pause(struct strait_link *link, int is_paused);
void strait_mail_stats(struct strait_link *link, strait_link_stats *out);
strait_err strait_mail_progress(struct strait_transport *t, int timeout_ms);
void strait_mail_wake(struct strait_transport *t);

/* The entries of a table of transport operations that all transports made of mails share. */
#define STRAIT_MAIL_TRANSPORT                                                           \
    .state_size = sizeof(struct strait_mail_transport),                                 \
    .link_size = sizeof(struct strait_mail_link), .fini = strait_mail_fini,             \
    .listen = strait_mail_listen, .dial = strait_mail_dial, .send = strait_mail_send,   \
    .close = strait_mail_close, .pause = strait_mail_pause, .stats = strait_mail_stats, \
    .progress = strait_mail_progress, .wake = strait_mail_wake
