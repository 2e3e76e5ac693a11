/* outer.h - averages the weights of replicas that train on their own (DiLoCo): the outer step.
 *
 * All replicas of a stage keep the same anchor, the weights of the last average, and the same outer
 * momentum. Replica r trains its own weights w_r. An exchange then averages the differences
 * d_r = anchor - w_r + e_r, where e_r is what earlier exchanges lost of replica r (error feedback),
 * and takes one step of SGD with Nesterov momentum:
 *
 *     D = sum of share_r Q(d_r);   v = momentum v + D;   anchor -= learning_rate (D + momentum v)
 *
 * With params.keeps_norm each block of D is scaled to the length that the differences have in the
 * root of the mean square.
 *
 * In the first steps of the run (schedule.warmup) the anchor becomes the plain average, anchor - D,
 * and v stays 0.
 *
 * Every replica continues from the new anchor, plus what it has learnt since it sent its
 * difference. One exchange is about one fragment of the values and has three phases, which the
 * coordinator commands, so that all replicas agree on who takes part:
 *
 *     begin   notes the weights and sends each chunk of the difference to the owner of the chunk
 *     sum     owners add up what the members sent, in the order of replicas, and send the results;
 *             complete when all results are here, otherwise it says who is missing
 *     apply   the outer step, from the results; changes anchor, momentum, residuals and weights
 *
 * Nothing but apply changes state, so that an exchange whose members got lost is begun again with
 * fewer (`attempt`). A replica that is not a member sends nothing, applies the same results and
 * keeps its whole difference in e_r for the next exchange.
 *
 * In a swarm any replica may send anything. A wary one takes no values that are not finite, and no
 * parts of a difference that are together STRAIT_OUTER_MOST times as large as its own whole
 * difference, or as what the last averages changed. It says whose values it rejected, and tells the
 * others that it has no results for them in this attempt; the coordinator decides who is left out
 * of the next.
 *
 * Values and results live on the host. One thread uses it, that of the runner; nothing blocks. */
#pragma once

#include "backend/backend.h"
#include "config/run_plan.h"
#include "net/mesh/mesh.h"
#include "optim/optimizer.h"

enum {
    STRAIT_MSG_OUTER = STRAIT_MSG_FIRST + 22, // between replicas of a stage
    STRAIT_OUTER_CHUNK = 65536,               // most values of a message
    STRAIT_OUTER_SLOWEST = 62500,             // bytes/s in each direction that a swarm waits for
    STRAIT_OUTER_MOST = 8 // times the usual norm that a difference may have; a result twice that
};

struct strait_outer;

typedef struct strait_outer_spec {
    int stage, replica, n_replicas;
    int n_threads;              // that compute; 0: one per core
    int is_wary;                // other replicas may be anyone's: values that they send are checked
    strait_outer_params params; // train.outer
    const strait_param *weights; // borrowed; those that never learn are left out
    int n_weights;
    /* It says which weights learn, and its state is averaged if params say so. Borrowed; NULL: all
     * learn. */
    const struct strait_optimizer *optimizer;
} strait_outer_spec;

/* STRAIT_ENOMEM; STRAIT_ECONFIG: too many values for the number of a chunk. */
strait_err strait_outer_open(const strait_outer_spec *spec, struct strait_backend *backend,
                             struct strait_outer **out);
void strait_outer_close(struct strait_outer **outer); // accepts NULL

/* The peers of the other replicas by number; the own entry is not read. Borrows the mesh. */
void strait_outer_connect(struct strait_outer *outer, struct strait_mesh *mesh, const int *peers);

/* This replica has another number from now on, and other links follow. Drops an exchange unless it
 * is complete: it can still be applied, as what this replica was when it began. */
void strait_outer_set_replica(struct strait_outer *outer, int replica);

/* Sets the anchor to the weights of this moment and everything else to zero. Drops an exchange. */
strait_err strait_outer_restart(struct strait_outer *outer, struct strait_stream *stream);

/* One exchange, as the coordinator describes it to every replica alike. */
typedef struct strait_outer_exchange {
    int64_t step;                      // after which it was begun
    int fragment;                      // or, behind them, the part of attention
    int attempt;                       // from 0
    uint64_t members;                  // replicas whose differences count, as bits
    uint64_t alive;                    // replicas that get the results; members among them
    float shares[STRAIT_RUN_REPLICAS]; // of each replica; any scale
    int is_resent; // the weights were noted before: by an earlier attempt or the run's last session
} strait_outer_exchange;

/* Begins an exchange; one that is under way is dropped. STRAIT_EPROTO: it cannot be. */
strait_err strait_outer_begin(struct strait_outer *outer, struct strait_stream *stream,
                              const strait_outer_exchange *exchange);

/* Sums what has arrived and posts what is ready. *is_blocked: some of it waits for space in a
 * queue. */
strait_err strait_outer_progress(struct strait_outer *outer, int *is_blocked);

/* Takes a message of another replica and clears it. Messages of earlier exchanges are dropped,
 * those of later ones kept. One that cannot be is dropped by a wary replica, which rejects its
 * sender; otherwise STRAIT_EPROTO, naming both, and the caller keeps it. */
strait_err strait_outer_deliver(struct strait_outer *outer, struct strait_msg **msg);

/* Whether an exchange is under way; whether it has all results and has posted all of its own. */
int strait_outer_is_begun(const struct strait_outer *outer);
int strait_outer_is_complete(const struct strait_outer *outer);
/* Members whose part of something that this replica sums is not here, as bits. */
uint64_t strait_outer_missing(const struct strait_outer *outer);
/* Replicas whose results are not here, or that do not take what is for them; 0 while parts are
 * missing, since everybody then waits for others. */
uint64_t strait_outer_withheld(const struct strait_outer *outer);
/* Replicas that sent something in this exchange that was not taken: values that a wary replica
 * checks, or too much ahead of time. */
uint64_t strait_outer_rejected(const struct strait_outer *outer);
/* Whether nothing that is awaited will come: it was rejected, or its sender has said so. */
int strait_outer_is_settled(const struct strait_outer *outer);
/* Returns the replica that the coordinator is told of, from 1, by one that lacks something; 0:
 * none. Parts come first: an owner that lacks them cannot send results. */
int strait_outer_first(uint64_t missing, uint64_t withheld);
/* Messages of exchanges that were taken so far: it rises while something moves. */
uint64_t strait_outer_delivered(const struct strait_outer *outer);
/* Bytes of what was taken so far. */
uint64_t strait_outer_taken(const struct strait_outer *outer);
/* How much longer a replica may wait for what others send, which has until `until_ns`, after
 * `bytes` more were taken: never more than a deadline from now on. A wary one waits longer only by
 * what the bytes take at the rate that all others share of a slow link: a sender that lets one
 * chunk cross per deadline gets no more time for it. */
int64_t strait_outer_extend(const struct strait_outer *outer, int64_t until_ns, uint64_t bytes,
                            int64_t now_ns, int64_t deadline_ns);
/* How long a wary replica waits in all, whatever moves: a sender could let one chunk cross per
 * deadline. Twice as long once no parts are missing, so that owners which got theirs at the last
 * moment can still send the results. INT64_MAX: one that is not wary. */
int64_t strait_outer_limit_ns(const struct strait_outer *outer, int64_t deadline_ns);
/* The peer of a replica; -1: there is no such link. */
int strait_outer_peer(const struct strait_outer *outer, int replica);

/* What apply measured: squared distance of this replica's difference from the average, and squared
 * size of the weights, over the fragment. */
typedef struct strait_outer_result {
    double distance, size;
} strait_outer_result;

/* Ends a complete exchange. The caller refreshes what follows from the weights. */
strait_err strait_outer_apply(struct strait_outer *outer, struct strait_stream *stream,
                              strait_outer_result *out);

/* Whether the exchange of this step and fragment was the last to be applied, and none was begun
 * since: a coordinator that lost a reply asks for it again. */
int strait_outer_has_applied(const struct strait_outer *outer, int64_t step, int fragment);

/* Continues from the anchor without any difference of its own: a replica whose state was copied
 * from another takes the averaged weights. Drops an exchange. */
strait_err strait_outer_catch_up(struct strait_outer *outer, struct strait_stream *stream);

/* Exchanges the weights with the anchor; a second call restores them. For validations. */
strait_err strait_outer_swap(struct strait_outer *outer, struct strait_stream *stream);

/* A tensor of the state of a replica, of the shape of one parameter, in host memory. */
typedef enum strait_outer_tensor {
    STRAIT_OUTER_ANCHOR,          // all replicas have the same
    STRAIT_OUTER_MOMENTUM,        // all replicas have the same
    STRAIT_OUTER_RESIDUAL,        // lost of this replica's differences
    STRAIT_OUTER_RESULT_RESIDUAL, // lost of the results that this replica owned
    STRAIT_OUTER_SENT,            // weights that the exchange under way noted
    STRAIT_OUTER_TENSORS
} strait_outer_tensor;

/* One of them for a weight of the spec; absent where it learns nothing or is not kept (residuals of
 * one replica, SENT while no exchange is under way unless `wants_all`). */
strait_tensor strait_outer_get(const struct strait_outer *outer, strait_outer_tensor kind,
                               int weight, int wants_all);

/* A checkpoint or a snapshot was read into these tensors. Drops an exchange. */
void strait_outer_note_read(struct strait_outer *outer, int has_residual);

/* The most bytes that one replica sends and receives in an exchange, whoever takes part; and for
 * how long a wary one waits for so many while parts are missing (strait_outer_limit_ns). */
double strait_outer_most_bytes(const strait_outer_spec *spec);
int64_t strait_outer_wait_ns(double bytes, int64_t deadline_ns);

/* Bytes of host memory for these parameters, without messages; and bytes that a replica sends in
 * an exchange of each part. Only shapes are read. */
size_t strait_outer_bytes(const strait_outer_spec *spec);
strait_outer_bytes_sent strait_outer_sent_bytes(const strait_outer_spec *spec);
