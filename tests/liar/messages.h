/* messages.h - every message of a swarm, with its fields by name, for tests that change them.
 *
 * A row names a message, who sends it and where its tables are (base/layout.h). The fields come
 * from those tables alone: a new field of a known message needs no change here, and check_messages
 * fails when a new message has no row. Names are MESSAGE.FIELD, or MESSAGE.KIND.FIELD for messages
 * of several kinds: "heartbeat.progress", "reply.gradients.loss_sum". Fields of the header that all
 * kinds share have a name without the kind, which means every kind, and one with it. */
#pragma once

#include "base/layout.h"
#include "net/core/msg.h"

enum {
    FROM_WORKER = 1,    // to the coordinator
    FROM_NEIGHBOUR = 2, // from worker to worker
    FROM_HOST = 4,      // from the coordinator to a worker
    FROM_REPLICA = 8,   // between replicas of a stage; not in the lists, as most runs have none

    MESSAGE_NAME = 96, // bytes of a field's name
    PARCEL_FLOATS = 1 << 20
};

typedef struct message_row {
    const char *name;
    uint8_t type;
    int senders;                             // FROM_...
    const strait_layout *header;             // NULL: a message without a table
    const strait_layout *(*body)(int kind);  // NULL: it has no kinds
    const strait_layout *(*named)(int kind); // a table that has the name of every kind
    int n_kinds;                             // one more than the last
    int uses_frame;                          // its fields in the frame mean something, too
} message_row;

/* A message without its packing. */
struct parcel {
    const message_row *row;
    const strait_layout *body; // of its kind; NULL: none
    const char *kind;          // its name; empty: none
    strait_view rest;          // bytes behind the fields; borrowed from the message
    _Alignas(16) unsigned char object[4096];
    float floats[PARCEL_FLOATS]; // memory of a list
};

/* NULL past the last. */
const message_row *message_at(int i);
/* NULL: no message of the swarm. */
const message_row *message_of(uint8_t type);

/* The name of a table of the swarm that has no row; NULL: all have. */
const char *check_messages(void);

/* Calls `with` for each field that any of `senders` sends, once per name. */
void each_field(int senders, void (*with)(const char *name, const strait_field *field));

/* 0 when the message is none of the tables, or malformed. `msg` must outlive the parcel. */
int parcel_unpack(struct strait_msg *msg, struct parcel *out);

/* A message of `size` bytes that are not set, with the frame of `like`. */
strait_err message_like(const struct strait_msg *like, size_t size, struct strait_msg **out);

/* Packs the parcel into a new message with the frame of `like`. */
strait_err parcel_pack(const struct parcel *parcel, const struct strait_msg *like,
                       struct strait_msg **out);

/* Whether a target such as "reply", "reply.gradients" or "reply.gradients.loss_sum" may concern the
 * message; a field is not looked for. */
int parcel_is(const struct parcel *parcel, const char *target);

/* The field that `target` names, in the parcel or in the frame of `msg`; NULL: this message does
 * not have it. */
const strait_field *parcel_find(struct parcel *parcel, struct strait_msg *msg, const char *target,
                                void **at);
