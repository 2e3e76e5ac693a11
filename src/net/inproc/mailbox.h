/* hub.h - the meeting place of inproc transports: named boxes that hold letters until they are due.
 *
 * Links name each other by id, never by pointer, so a letter to a link that has gone is simply
 * dropped. Every function may be called by all threads. Letters are reused: after warm-up posting
 * allocates nothing. */
#pragma once

#include "net/core/handshake.h"
#include "net/core/identity.h"

struct strait_inproc_network;

strait_err strait_inproc_network_open(struct strait_inproc_network **out);
void strait_inproc_network_close(
    struct strait_inproc_network **network); // after its transports; accepts NULL

typedef enum strait_mail_kind {
    STRAIT_MAIL_CONNECT,
    STRAIT_MAIL_ACCEPT,
    STRAIT_MAIL_MESSAGE,
    STRAIT_MAIL_CREDIT, // a message was received: its bytes are free again
    STRAIT_MAIL_PING,
    STRAIT_MAIL_PONG,
    STRAIT_MAIL_BYE
} strait_mail_kind;

struct strait_mailbox;

struct strait_mail {
    struct strait_mail *next;
    strait_mail_kind kind;
    int64_t due_ns;
    uint64_t to, from;               // links
    struct strait_mailbox *reply_to; // CONNECT and ACCEPT
    struct strait_msg *msg;          // MESSAGE
    uint64_t number;                 // bytes of ROOM, clock of BEAT and ECHO
    strait_fingerprint key;          // CONNECT and ACCEPT
    strait_hello hello;              // CONNECT and ACCEPT
    strait_bye bye;                  // GOODBYE
};

strait_err strait_mailbox_open(struct strait_inproc_network *network, struct strait_mailbox **out);
void strait_mailbox_close(struct strait_mailbox **mailbox); // with all letters in it; accepts NULL

/* STRAIT_EINVAL when another box has this name. */
strait_err strait_mailbox_bind(struct strait_mailbox *mailbox, const char *name);
/* STRAIT_ECLOSED when nobody has. Borrowed; post() finds out whether it still exists. */
strait_err strait_mailbox_find(struct strait_inproc_network *network, const char *name,
                               struct strait_mailbox **out);

/* Copies the letter into box `to`; takes its message on success. STRAIT_ECLOSED when the box is
 * gone. A letter due at INT64_MAX is lost on the way. */
strait_err strait_mailbox_send(struct strait_inproc_network *network, struct strait_mailbox *to,
                               struct strait_mail *mail);

/* Waits until `until_ns` for a letter that is due and copies it to *out; 0 when none came. A call
 * to strait_mailbox_wake ends the wait. */
int strait_mailbox_receive(struct strait_mailbox *mailbox, int64_t until_ns,
                           struct strait_mail *out);
void strait_mailbox_wake(struct strait_mailbox *mailbox);
