/* limits.c - how long a worker may be silent, and how long a phase may take.
 *
 * A worker that sends heartbeats with changing progress looks alive for ever. So every phase also
 * has a limit that counts from its beginning. It grows with what the coordinator itself knows: the
 * size of the stage and how long recent steps took. Nothing that a worker sends extends it, but
 * snapshots that arrive at no less than a certain rate (arrivals.c). */
#include "stage/outer/outer.h"
#include "swarm/coordinator/arrivals.h"
#include "swarm/coordinator/state.h"

#define SECOND_NS     INT64_C(1000000000)
#define REPLY_NS      (10 * SECOND_NS)  // for any reply, besides the work it needs
#define REPLY_MAX_NS  (30 * SECOND_NS)  // with the end of the action that a worker is computing
#define SETUP_NS      (30 * SECOND_NS)  // to load a device's libraries, before any allocation
#define CONNECT_NS    (3 * SECOND_NS)   // for two neighbours to connect, in the first attempts
#define REPLY_ACTIONS 4                 // recent durations added to a reply outside of work
#define WORK_FACTOR   8                 // recent durations that a goal may take
#define STEP_FACTOR   8                 // times the fastest one that recent steps count for
#define STEP_CHANGES  3                 // penalties without a new step; then they count in full
#define LAST_NS       (30 * SECOND_NS)  // for the last one to reply, after all others
#define SLOWER_NS     (600 * SECOND_NS) // that an average may take more than recent ones
#define COPY_NS       (60 * SECOND_NS)  // for the copy of a stage that moves, whatever its size
#define LEASE_FACTOR  8                 // leases cover this many times the longest gap seen
#define SHIFT_MAX     3                 // limits double with failures in a row, up to 8 times
#define SAVE_MAX      8                 // those of snapshots for a checkpoint up to 256 times

static const double slowest_fill = 5e7; // bytes per second of allocating and initialising a stage
static const double slowest_link = 1e6; // bytes per second at which snapshots are sent

static int64_t longer(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t shorter(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Without a spare the same workers try again. If they are slow and not at fault, they need longer
 * than the limit says, so it doubles until they succeed. */
static int doublings(const struct strait_coordinator *c, int n_free) {
    const int n = c->n_failures - n_free;
    return n < 0 ? 0 : (n < SHIFT_MAX ? n : SHIFT_MAX);
}

int64_t strait_coordinator_connect_ns(const struct strait_coordinator *c) {
    return CONNECT_NS << doublings(c, 2);
}

/* Which of the recent durations belongs to a goal. */
static int kind_of(const strait_swarm_goal *goal) {
    if (goal->is_begin) return 0;
    if (goal->is_average) return 2 + goal->is_average;
    if (goal->is_validation) return 6;
    return goal->is_update ? 1 : 2;
}

/* Which of the fastest durations bounds that of a goal: of a step, with its update, or of a
 * validation, which are all alike. -1: none. */
static int bound_of(const strait_swarm_goal *goal) {
    if (goal->is_validation) return 1;
    return goal->is_begin || goal->is_update ? 0 : -1;
}

/* Whether all owners are slow: none was faster, or there is nobody else. */
static int are_all_slow(const struct strait_coordinator *c) {
    return c->n_changes > STEP_CHANGES || strait_coordinator_count_spares(c) == 0;
}

void strait_coordinator_note_goal(struct strait_coordinator *c, int64_t now_ns) {
    int64_t *recent = &c->goal_ns[kind_of(&c->goal)];
    const int64_t took_ns = now_ns - c->phase_began_ns;
    if (c->goal.is_slow) return;
    *recent = longer(took_ns, *recent - *recent / 16); // a falling maximum
    if (bound_of(&c->goal) < 0 || c->goal.is_update || c->goal.is_replay) return;
    int64_t *fastest = &c->fastest_ns[bound_of(&c->goal)];
    if (*fastest == 0 || took_ns < *fastest) *fastest = took_ns;
    if (c->n_changes > STEP_CHANGES) // from now on such steps are in time
        *fastest = longer(*fastest, took_ns / STEP_FACTOR / WORK_FACTOR);
}

/* Returns how long the goal takes of late. A worker that takes almost all its time in each step
 * would otherwise have eight times as much in the next. So a step, an update or a validation counts
 * for a few times the fastest one of the run, unless nobody is faster. */
static int64_t usual_ns(const struct strait_coordinator *c) {
    const int64_t recent = c->goal_ns[kind_of(&c->goal)];
    const int bound = bound_of(&c->goal);
    if (bound < 0 || c->fastest_ns[bound] == 0 || are_all_slow(c)) return recent;
    return shorter(recent, STEP_FACTOR * c->fastest_ns[bound]);
}

/* Returns the time for work on all bytes of a stage. */
static int64_t for_bytes(const struct strait_coordinator *c, int stage, double bytes_per_s) {
    const double need = c->config.need_bytes[stage];
    if (need <= 0.0) return c->config.setup_timeout_ns;
    return (int64_t)(need / bytes_per_s * (double)SECOND_NS);
}

/* Returns the time to send the snapshot of a stage. */
static int64_t for_snapshot(const struct strait_coordinator *c, int stage) {
    const double bytes = c->config.snapshot_bytes[stage];
    if (bytes <= 0.0) return for_bytes(c, stage, slowest_link);
    return (int64_t)(bytes / slowest_link * (double)SECOND_NS);
}

/* Returns the newest step at which others have the stage: a neighbour, or the driver. */
static int64_t newest_copy(const struct strait_coordinator *c, int stage) {
    int64_t newest = longer(c->checkpoint, 0);
    for (int i = stage - 1; i <= stage + 1; i += 2) {
        if (i < 0 || i >= c->config.n_stages || c->owner[i] < 0) continue;
        const strait_snapshot_inventory *inventory = &c->workers[c->owner[i]].inventory;
        const strait_snapshot_set *copies = i < stage ? &inventory->next : &inventory->prev;
        for (int k = 0; k < copies->n; k++)
            if (strait_coordinator_can_give(c, i, stage, copies->steps[k]))
                newest = longer(newest, copies->steps[k]);
    }
    return newest;
}

/* Returns the time for a neighbour to get the copy of a stage that moves: a minute if it does not
 * arrive, else what its bytes take on the slowest link that a swarm waits for, but no more than the
 * steps took that are computed again without it. In the background copies get a fifth of a link, so
 * an honest owner, which sends this one at the full rate, has five times the time that it needs. */
static int64_t for_copy(const struct strait_coordinator *c, int stage, int64_t now_ns) {
    const double bytes = c->config.snapshot_bytes[stage];
    const double sending_ns = bytes / STRAIT_OUTER_SLOWEST * (double)SECOND_NS;
    const double repeating_ns = (double)(c->step - newest_copy(c, stage)) *
                                (double)(c->goal_ns[0] + c->goal_ns[1]);
    if (!strait_coordinator_is_copied(c, stage, now_ns)) return COPY_NS;
    return COPY_NS + (int64_t)(sending_ns < repeating_ns ? sending_ns : repeating_ns);
}

/* A worker replies between two actions of its stage, so the last command may still occupy it. */
static int64_t for_reply(const struct strait_coordinator *c) {
    return shorter(REPLY_NS + REPLY_ACTIONS * c->goal_ns[0], REPLY_MAX_NS);
}

/* The time to set a stage up or to do what was not timed before. Who takes
 * much longer than those that have replied is not slow but silent. If all other workers are slow,
 * the limit grows with each attempt that timed out, so that one succeeds. */
static int64_t for_setup(const struct strait_coordinator *c) {
    const int n_timeouts = c->n_changes > 1 ? c->n_changes - 1 : 0; // the first is what began it
    const int n = n_timeouts < SHIFT_MAX ? n_timeouts : SHIFT_MAX;
    if (c->replied_ns < 0) return SETUP_NS;
    return longer(shorter(REPLY_NS << n, SETUP_NS), WORK_FACTOR * c->replied_ns);
}

int strait_coordinator_is_saving(const struct strait_coordinator *c) {
    return c->phase == STRAIT_PHASE_WORK && c->goal.is_slow && c->goal.stage >= 0;
}

/* Returns how many workers have to reply in this phase. */
static int count_awaited(const struct strait_coordinator *c) {
    int n = 0;
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++)
            n += strait_coordinator_awaits(c, strait_coordinator_replica(c, i, k));
    return n;
}

/* The phases of an average take different times: the first is over at once, the next sends all
 * weights. A worker that waits for others replies when its own time is over, and says who is late.
 * That is long, for a slow link: but slow averages are slow each time, and slow exchanges keep both
 * ends. The one that has not replied when all others have is given their time, a little more, and
 * what it may take until everything arrives that the others had queued when they replied. Of two
 * replicas of its stage that is not known: the other may have replied too early. */
static int64_t for_average(const struct strait_coordinator *c, int stage) {
    const int64_t recent = c->goal_ns[kind_of(&c->goal)];
    const int64_t planned = c->config.average_ns[stage] > 0 ? c->config.average_ns[stage]
                                                            : 2 * for_snapshot(c, stage);
    const int n_others = strait_coordinator_n_replicas(c, stage) - 1;
    int64_t limit = REPLY_NS + planned;
    if (recent > 0)
        limit = shorter(limit, SLOWER_NS + 2 * c->config.deadline_ns + WORK_FACTOR * recent);
    if (count_awaited(c) == 1 && n_others > 1)
        limit = shorter(limit, LAST_NS + c->config.deadline_ns + c->replied_ns +
                                   n_others * c->config.queue_ns);
    return limit;
}

/* A slow goal of one stage sends its snapshot; one of all stages times their passes. Steps that
 * are computed again in between reset the failures in a row, and a home with a slow uplink and no
 * spare would never save, so snapshots that came too late are counted apart. */
static int64_t for_goal(const struct strait_coordinator *c, int stage) {
    const int64_t recent = usual_ns(c);
    const int n_timeouts = c->n_late_saves < SAVE_MAX ? c->n_late_saves : SAVE_MAX;
    if (strait_coordinator_is_saving(c))
        return for_reply(c) + (for_snapshot(c, stage) << n_timeouts);
    if (c->goal.is_average) return for_average(c, stage);
    if (!c->goal.is_slow && recent > 0) return REPLY_NS + WORK_FACTOR * recent;
    return for_setup(c) + (c->replied_ns < 0 ? for_bytes(c, stage, slowest_link) : 0);
}

static int64_t limit_of(const struct strait_coordinator *c, int stage, int64_t now_ns) {
    switch (c->phase) {
    case STRAIT_PHASE_CONNECT: return for_reply(c) + strait_coordinator_connect_ns(c);
    case STRAIT_PHASE_OPEN: return for_setup(c) + for_bytes(c, stage, slowest_fill);
    case STRAIT_PHASE_RESTORE:
    case STRAIT_PHASE_SNAPSHOT: return for_reply(c) + for_snapshot(c, stage);
    case STRAIT_PHASE_HANDOVER: return for_copy(c, stage, now_ns);
    case STRAIT_PHASE_WORK: return for_goal(c, stage) << doublings(c, 0);
    default: return for_reply(c);
    }
}

/* A worker that hangs must be found even if other failures begin a new generation every few
 * seconds: what counts is since when it has replied to nothing. */
int strait_coordinator_is_late(const struct strait_coordinator *c, int slot, int stage,
                               int64_t now_ns) {
    if (c->phase == STRAIT_PHASE_WAITING || slot < 0) return 0; // it has no owner
    const int64_t asked_ns = c->workers[slot].asked_ns;
    const int owes = c->phase == STRAIT_PHASE_ASSIGN && asked_ns != 0;
    const int64_t since = owes ? shorter(asked_ns, c->phase_began_ns) : c->phase_began_ns;
    if (c->phase == STRAIT_PHASE_RESTORE && strait_coordinator_is_restoring(c, now_ns)) return 0;
    return now_ns - since > limit_of(c, stage, now_ns);
}

int strait_coordinator_is_overdue(const struct strait_coordinator *c, int stage, int64_t now_ns) {
    return c->is_awaited[stage] && strait_coordinator_is_late(c, c->owner[stage], stage, now_ns);
}

/* What a worker may take if its longest pause so far was `seen_ns`. */
static int64_t with_pauses(const struct strait_coordinator *c, int64_t usual_ns, int64_t seen_ns) {
    return longer(usual_ns, shorter(LEASE_FACTOR * seen_ns, c->config.lease_max_ns));
}

const char *strait_coordinator_fault(const struct strait_coordinator *c, int slot, int64_t now_ns) {
    const strait_swarm_worker *worker = &c->workers[slot];
    const int is_awaited = c->phase != STRAIT_PHASE_WAITING && strait_coordinator_awaits(c, slot);
    /* While it allocates or measures a stage, the computing thread sends no heartbeats. */
    if (is_awaited && (c->phase != STRAIT_PHASE_WORK || c->goal.is_slow)) return NULL;
    if (now_ns - worker->seen_ns > with_pauses(c, c->config.lease_ns, worker->max_gap_ns))
        return "no heartbeat: lease expired; disconnected";
    if (!is_awaited || worker->waits_for != 0) return NULL;
    /* The one that it names has replied, perhaps too early. How long that may go on, and which of
     * the two is left out, is a matter of the average. */
    if (c->goal.is_average && worker->standing.awaited_replica > 0) return NULL;
    const int64_t since = longer(worker->progress_ns, c->phase_began_ns);
    return now_ns - since > with_pauses(c, c->config.stall_timeout_ns, worker->max_pause_ns)
               ? "sends heartbeats but makes no progress; disconnected"
               : NULL;
}
