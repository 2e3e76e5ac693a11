/* outer_state.h - the inside of an outer step, for its files: outer.c has the values,
 * outer_exchange.c the messages, outer_sum.c the averages and outer_step.c the step. */
#pragma once

#include "base/pool.h"
#include "stage/outer/outer.h"

/* What a message holds. */
enum {
    HOLDS_PART = 0,   // a chunk of a difference, for the owner of the chunk
    HOLDS_RESULT = 1, // the chunk averaged over the members, from its owner
    HOLDS_NOTHING = 2 // the sender rejected a part: it has no results for this attempt
};

enum {
    STRAIT_OUTER_PIECE = 4096, // values computed at a time; a multiple of the blocks of quantize.h
    STRAIT_OUTER_BLOCK = 64    // values of an average that keep_norm scales together
};

/* A stretch of values that crosses in one message. */
struct chunk {
    int64_t first, n;
    int is_state; // of the optimizer: averaged as it is, without error feedback
    struct strait_msg *parts[STRAIT_RUN_REPLICAS]; // arrived from members; owner only
    struct strait_msg *result;                     // NULL: not here yet
    struct strait_msg *lost; // what rounding the result lost, in f32; owner only, else NULL
    double distance, size;
};

/* Messages for one peer that are not posted yet, in order. */
struct outgoing {
    struct strait_msg *first, *last;
};

/* A tensor whose values are part of the row of all values. */
struct segment {
    strait_tensor tensor;
    int64_t first; // offset of its first value
    int weight;    // its number in the spec; -1: state
};

struct strait_outer {
    strait_outer_spec spec;
    struct strait_backend *backend;
    struct strait_mesh *mesh;
    struct strait_msg_pool *alone; // for results, where there is one replica; else NULL
    struct strait_pool *pool;      // NULL: there is little to compute
    int peers[STRAIT_RUN_REPLICAS];
    struct segment *segments; // weights first, then states
    int n_segments;
    int *segment_of;                   // of each weight of the spec; -1: it never learns
    int64_t n_weights, n_states;       // values
    int64_t n_attention;               // the last ones of the weights
    float *anchor, *momentum;          // [n_weights]
    float *residual, *result_residual; // [n_weights]; NULL: one replica
    float *sent; // [n_weights + n_states], pinned: as the exchange noted them; then new weights
    float *mark; // one value behind `sent` that nobody reads (STRAIT_OUTER_IN_FLIGHT)
    float *now;  // [largest fragment], pinned: weights when the average is applied; NULL: overlap 0
    int has_residual; // some residual is not 0
    strait_outer_exchange exchange;
    int is_begun;
    int self;        // number of this replica when the exchange was begun
    int has_applied; // `exchange` was applied
    struct chunk *chunks;
    int n_chunks, capacity; // of the exchange; of the array
    int n_results;
    int *ready; // chunks to sum, for the pool
    int n_ready;
    struct outgoing outgoing[STRAIT_RUN_REPLICAS];
    struct strait_msg *early;         // of later exchanges
    int n_early[STRAIT_RUN_REPLICAS]; // of each sender
    uint64_t n_delivered, n_taken;    // messages, bytes
    /* Parts that were averaged since this replica began, or came to know the others' state: it has
     * trained a whole interval since. */
    unsigned char is_averaged[STRAIT_OUTER_FRAGMENTS + 1];
    double yardstick; // norm of a usual difference in this exchange; INFINITY: not known
    /* Squared norms of what was taken from each replica in this exchange, if wary: */
    double part_squares[STRAIT_RUN_REPLICAS], result_squares[STRAIT_RUN_REPLICAS];
    uint64_t rejected; // replicas whose values were not taken in this exchange
    int has_told;      // the others know that this replica has no results for them
    uint64_t given_up; // replicas that said that they have no results
};

static inline int strait_outer_has(uint64_t replicas, int replica) {
    return (int)(replicas >> replica & 1);
}

/* How many replicas a set has. */
int strait_outer_count_bits(uint64_t bits);

/* Members own the chunks in turn. */
int strait_outer_owner(const struct strait_outer *o, int chunk);

/* Bits of a chunk on the wire; of a part of it as its sender has it; and of its result. */
int strait_outer_wire_bits(const struct strait_outer *o, const struct chunk *chunk);
int strait_outer_part_bits(const struct strait_outer *o, int chunk);
int strait_outer_result_bits(const struct strait_outer *o, int chunk);

/* Values of a chunk of so many, which are averaged by so many members: fewer than the most where
 * there would not be a chunk for each of them. */
int64_t strait_outer_chunk_size(int64_t n_values, int n_members);

struct strait_outer_range {
    int64_t first, end;
};

/* The weights, or the values of state, of the part that is exchanged. */
struct strait_outer_range strait_outer_range(const struct strait_outer *o, int is_state);

/* Copies values [first, end) of the row from the device to `host`, or back. Does not wait. */
strait_err strait_outer_copy(struct strait_outer *o, struct strait_stream *stream, int64_t first,
                             int64_t end, float *host, int is_upload);

/* Sets up the chunks of the exchange, which is begun. */
void strait_outer_list_chunks(struct strait_outer *o);

/* Encodes and queues the parts of this replica. */
strait_err strait_outer_send_parts(struct strait_outer *o);

/* Notes how large differences usually are, for the exchange that is begun. */
void strait_outer_measure(struct strait_outer *o);

/* Whether the values of a part or result of a chunk may be used, after what the replica has sent in
 * the exchange before; counts them if so. */
int strait_outer_is_plausible(struct strait_outer *o, int from, const struct chunk *chunk,
                              const struct strait_msg *msg);

/* Takes nothing more of a replica in this exchange. If parts of it are missing, tells the others
 * that there will be no results. */
strait_err strait_outer_reject(struct strait_outer *o, int replica);

/* Opens a message of the exchange; appends one to those for a replica. */
strait_err strait_outer_message(struct strait_outer *o, int holds, int chunk, size_t bytes,
                                struct strait_msg **out);
strait_err strait_outer_chunk_message(struct strait_outer *o, int holds, int chunk, int bits,
                                      struct strait_msg **out); // as large as the chunk in `bits`
void strait_outer_queue(struct strait_outer *o, int replica, struct strait_msg *msg);

/* Averages the chunks of this replica whose parts have arrived, and queues the results. */
strait_err strait_outer_sum_ready(struct strait_outer *o);

/* Drops all messages of the exchange; and those of later ones. */
void strait_outer_drop(struct strait_outer *o);
void strait_outer_drop_early(struct strait_outer *o);

/* Whether a weight of the spec is averaged: those that never learn are the same everywhere. */
int strait_outer_averages(const strait_outer_spec *spec, int weight);

/* The number of averaged weights and of values of state. */
struct strait_outer_count {
    int64_t weights, states;
    int64_t attention; // of the weights, those in the part of attention: the last ones
};

struct strait_outer_count strait_outer_count(const strait_outer_spec *spec);

/* Runs a task for each of n chunks, on all threads. */
void strait_outer_run(struct strait_outer *o, int n, strait_pool_task task);

/* Writes the difference of values [first, first + n) with its residual; a state as it is. */
void strait_outer_difference(const struct strait_outer *o, const struct chunk *chunk, int64_t first,
                             int n, float *out);
