/* mailbox.h - how inproc transports reach each other: a network of mailboxes that keep mails until
 * they are due.
 *
 * Links address each other by id, never by pointer, so a mail to a link that has closed is simply
 * dropped. Every function may be called by all threads. Mails are reused: after warm-up sending
 * allocates nothing. */
#pragma once

#include "net/core/handshake.h"
#include "net/core/identity.h"

struct strait_inproc_network;

strait_err strait_inproc_network_open(struct strait_inproc_network **out);
/* Call after all its transports are closed. Accepts NULL. */
void strait_inproc_network_close(struct strait_inproc_network **network);

typedef enum strait_mail_kind {
    STRAIT_MAIL_CONNECT, // a link dials
    STRAIT_MAIL_ACCEPT,  // the answer, from the new link at the other end
    STRAIT_MAIL_MESSAGE,
    STRAIT_MAIL_CREDIT, // a message was received: the sender may send as many bytes again
    STRAIT_MAIL_PING,
    STRAIT_MAIL_PONG,
    STRAIT_MAIL_BYE
} strait_mail_kind;

struct strait_mailbox;

struct strait_mail {
    struct strait_mail *next;
    strait_mail_kind kind;
    int64_t due_ns;                  // when it may be received; INT64_MAX: lost
    uint64_t to, from;               // ids of links
    struct strait_mailbox *reply_to; // CONNECT and ACCEPT
    struct strait_msg *msg;          // MESSAGE
    uint64_t number;                 // bytes of CREDIT, sender's clock of PING and PONG
    strait_fingerprint key;          // CONNECT and ACCEPT
    strait_hello hello;              // CONNECT and ACCEPT
    strait_bye bye;                  // BYE
};

/* Opens a mailbox without a name, which only receives answers. STRAIT_ENOMEM. */
strait_err strait_mailbox_open(struct strait_inproc_network *network, struct strait_mailbox **out);
/* Closes it with all mails inside; sets it to NULL. Accepts NULL. */
void strait_mailbox_close(struct strait_mailbox **mailbox);

/* Gives the mailbox a name that others can dial. STRAIT_EINVAL when it is taken or too long. */
strait_err strait_mailbox_bind(struct strait_mailbox *mailbox, const char *name);
/* Finds a mailbox by name. STRAIT_ECLOSED when there is none. The result may be closed at any time
 * and must only be passed to strait_mailbox_send, which checks. */
strait_err strait_mailbox_find(struct strait_inproc_network *network, const char *name,
                               struct strait_mailbox **out);

/* Copies the mail into mailbox `to` and takes its message on success. STRAIT_ECLOSED when the
 * mailbox is closed. A mail that is due at INT64_MAX is lost on the way, which is a success. */
strait_err strait_mailbox_send(struct strait_inproc_network *network, struct strait_mailbox *to,
                               struct strait_mail *mail);

/* Waits until `until_ns` for a mail that is due and copies it to *out; returns 0 when there was
 * none. strait_mailbox_wake ends the wait early. */
int strait_mailbox_receive(struct strait_mailbox *mailbox, int64_t until_ns,
                           struct strait_mail *out);
void strait_mailbox_wake(struct strait_mailbox *mailbox);
