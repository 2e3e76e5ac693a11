/* mailbox.h - how inproc transports reach each other: a network of mailboxes that keep mails until
 * they are due.
 *
 * Every function may be called by all threads. Mails are reused: after warm-up sending
 * allocates nothing. */
#pragma once

#include "net/mail/mail.h"

struct strait_inproc_network;

strait_err strait_inproc_network_open(struct strait_inproc_network **out);
/* Call after all its transports are closed. Accepts NULL. */
void strait_inproc_network_close(struct strait_inproc_network **network);

struct strait_mailbox;

/* Opens a mailbox without a name, which only receives answers. STRAIT_ENOMEM. */
strait_err strait_mailbox_open(struct strait_inproc_network *network, struct strait_mailbox **out);
/* Closes it with all mails inside; sets it to NULL. Accepts NULL. */
void strait_mailbox_close(struct strait_mailbox **mailbox);

/* Its number in the network; never reused. */
uint64_t strait_mailbox_number(const struct strait_mailbox *mailbox);

/* Gives the mailbox a name that others can dial. STRAIT_EINVAL when it is taken or too long. */
strait_err strait_mailbox_bind(struct strait_mailbox *mailbox, const char *name);
/* Finds the number of another mailbox of the same network by name. STRAIT_ECLOSED when there is
 * none. The mailbox may be closed at any time: strait_mailbox_send checks. */
strait_err strait_mailbox_find(struct strait_mailbox *mailbox, const char *name, uint64_t *out);

/* Copies the mail from a mailbox into the one with number `to` and takes its message on success.
 * STRAIT_ECLOSED when the mailbox is closed. A mail that is due at INT64_MAX is lost on the way,
 * which is a success. */
strait_err strait_mailbox_send(struct strait_mailbox *mailbox, uint64_t to,
                               struct strait_mail *mail);

/* Waits until `until_ns` for a mail that is due and copies it to *out; returns 0 when there was
 * none. strait_mailbox_wake ends the wait early. */
int strait_mailbox_receive(struct strait_mailbox *mailbox, int64_t until_ns,
                           struct strait_mail *out);
void strait_mailbox_wake(struct strait_mailbox *mailbox);
