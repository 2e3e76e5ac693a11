/* hub.h - the meeting place of inproc transports: named boxes that hold letters until they are due.
 *
 * Links name each other by id, never by pointer, so a letter to a link that has gone is simply
 * dropped. Every function may be called by all threads. Letters are reused: after warm-up posting
 * allocates nothing. */
#pragma once

#include "net/handshake.h"
#include "net/identity.h"

struct strait_inproc_hub;

strait_err strait_inproc_hub_open(struct strait_inproc_hub **out);
void strait_inproc_hub_close(struct strait_inproc_hub **hub); // after its transports; accepts NULL

typedef enum strait_letter_kind {
    STRAIT_LETTER_CONNECT,
    STRAIT_LETTER_ACCEPT,
    STRAIT_LETTER_MESSAGE,
    STRAIT_LETTER_ROOM, // a message was received: its bytes are free again
    STRAIT_LETTER_BEAT,
    STRAIT_LETTER_ECHO,
    STRAIT_LETTER_GOODBYE
} strait_letter_kind;

struct strait_box;

struct strait_letter {
    struct strait_letter *next;
    strait_letter_kind kind;
    int64_t due_ns;
    uint64_t to, from;           // links
    struct strait_box *reply_to; // CONNECT and ACCEPT
    struct strait_msg *msg;      // MESSAGE
    uint64_t number;             // bytes of ROOM, clock of BEAT and ECHO
    strait_fingerprint key;      // CONNECT and ACCEPT
    strait_hello hello;          // CONNECT and ACCEPT
    strait_bye bye;              // GOODBYE
};

strait_err strait_box_open(struct strait_inproc_hub *hub, struct strait_box **out);
void strait_box_close(struct strait_box **box); // with all letters in it; accepts NULL

/* STRAIT_EINVAL when another box has this name. */
strait_err strait_box_name(struct strait_box *box, const char *name);
/* STRAIT_ECLOSED when nobody has. Borrowed; post() finds out whether it still exists. */
strait_err strait_box_find(struct strait_inproc_hub *hub, const char *name,
                           struct strait_box **out);

/* Copies the letter into box `to`; takes its message on success. STRAIT_ECLOSED when the box is
 * gone. A letter due at INT64_MAX is lost on the way. */
strait_err strait_box_post(struct strait_inproc_hub *hub, struct strait_box *to,
                           struct strait_letter *letter);

/* Waits until `until_ns` for a letter that is due and copies it to *out; 0 when none came. A call
 * to strait_box_wake ends the wait. */
int strait_box_take(struct strait_box *box, int64_t until_ns, struct strait_letter *out);
void strait_box_wake(struct strait_box *box);
