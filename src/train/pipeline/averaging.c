/* averaging.c - replicas that train on their own (train.outer): the norm and the update of each,
 * and the exchanges in which they average their weights (stage/outer/outer.h). The coordinator
 * decides who takes part, so that all replicas apply the same average. */
#include "stage/outer/outer_tensors.h"
#include "store/checkpoint.h"
#include "train/pipeline/pipeline_state.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ATTEMPTS = 4 // of one exchange, with fewer members each time
};

/* ---- local steps ---- */

static uint64_t alive_of(const struct strait_pipeline *p) {
    const int n = plan_of(p)->replicas[0];
    const uint64_t all = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    return all & ~p->channel->lost;
}

/* Of the microbatches of a step, those that a replica computes. */
static double share_of(const struct strait_pipeline *p, int replica) {
    const strait_groups *groups = &plan_of(p)->groups;
    int n = 0;
    for (int i = 0; i < groups->n_microbatches; i++)
        n += p->owners[0].replica[strait_groups_of(groups, i)] == replica;
    return (double)n / groups->n_microbatches;
}

/* The gradients of a replica are those of its share of the step, divided by all tokens: the norm of
 * their mean is as much larger as the share is smaller. */
static double norm_of(struct strait_pipeline *p, int replica) {
    int n = 0;
    double n_faults = 0.0;
    for (int i = 0; i < p->n_stages; i++) {
        const int member = strait_run_plan_member(plan_of(p), i, replica);
        const strait_stage_reply *reply = &p->channel->replies.items[member];
        const strait_stage_faults *faults = &reply->gradients.faults;
        p->outer.bytes[member] += (double)reply->gradients.reduce_bytes; // during the step
        const strait_floats *squares = &reply->gradients.squares;
        memcpy(p->joined + n, squares->data, (size_t)squares->n * sizeof(float));
        n += squares->n;
        n_faults += faults->nonfinite + faults->rejected_next + faults->rejected_prev;
        if (!isfinite(reply->gradients.loss_sum)) n_faults = INFINITY;
    }
    return n_faults > 0.0 ? NAN : strait_executor_norm(p->joined, n) / share_of(p, replica);
}

double strait_pipeline_local_norms(struct strait_pipeline *p, double *sum) {
    double norms = 0.0, losses = 0.0, shares = 0.0, all_losses = 0.0, all_shares = 0.0;
    int n = 0;
    for (int r = 0; r < plan_of(p)->replicas[0]; r++) {
        const int last = strait_run_plan_member(plan_of(p), p->n_stages - 1, r);
        if (is_lost(p, r)) continue;
        p->outer.norms[r] = norm_of(p, r);
        all_losses += p->channel->replies.items[last].gradients.loss_sum;
        all_shares += share_of(p, r);
        if (!isfinite(p->outer.norms[r])) continue;
        losses += p->channel->replies.items[last].gradients.loss_sum;
        shares += share_of(p, r);
        norms += p->outer.norms[r];
        n++;
    }
    *sum = n > 0 ? losses / shares : all_losses / all_shares;
    return n > 0 ? norms / n : NAN;
}

strait_err strait_pipeline_local_updates(struct strait_pipeline *p, int64_t step) {
    for (int i = 0; i < p->channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        const double norm = p->outer.norms[replica];
        if (is_lost(p, replica)) continue;
        const double clipped = (double)strait_executor_factor(p->executor->run.train.clip, norm);
        const strait_stage_command command = {
            .kind = STRAIT_COMMAND_UPDATE,
            .update = {.step = step,
                       .factor = isfinite(norm) ? (float)(clipped / share_of(p, replica)) : NAN}};
        STRAIT_TRY(p->channel->ops->send(p->channel, i, &command));
    }
    return p->channel->ops->gather(p->channel);
}

/* ---- exchanges ---- */

static int is_member_lost(const struct strait_pipeline *p, int member) {
    int stage, replica;
    strait_run_plan_locate(plan_of(p), member, &stage, &replica);
    return is_lost(p, replica);
}

/* Bytes that one member received since the last average, where that is most. Starts anew. */
static double take_bytes(struct strait_pipeline *p) {
    double most = 0.0;
    for (int i = 0; i < p->channel->n_members; i++)
        most = fmax(most, p->outer.bytes[i]);
    memset(p->outer.bytes, 0, sizeof p->outer.bytes);
    return most;
}

static strait_err command_phase(struct strait_pipeline *p, strait_outer_phase phase,
                                int is_resent) {
    const strait_stage_command command = {.kind = STRAIT_COMMAND_OUTER,
                                          .outer = {.phase = (int)phase,
                                                    .step = p->outer.sent_at,
                                                    .fragment = p->outer.fragment,
                                                    .attempt = p->outer.attempt,
                                                    .members = p->outer.members,
                                                    .alive = alive_of(p),
                                                    .is_resent = is_resent,
                                                    .owners = p->owners[0]}};
    STRAIT_TRY(strait_pipeline_command_all(p, &command));
    for (int i = 0; i < p->channel->n_members; i++)
        if (!is_member_lost(p, i))
            p->outer.bytes[i] += (double)p->channel->replies.items[i].outer.bytes;
    return STRAIT_OK;
}

/* Among the replicas of now. */
static void doubt_nobody(struct strait_pipeline *p) {
    p->outer.exclusion.is_trusting = p->channel->ops->leave_out == NULL;
    strait_exclusion_begin(&p->outer.exclusion, p->channel->labels, plan_of(p)->replicas[0]);
}

static strait_err begin(struct strait_pipeline *p, int fragment, int64_t done, int is_resent) {
    p->outer.fragment = fragment;
    p->outer.sent_at = done;
    p->outer.attempt = p->outer.n_tries = p->outer.must_resend = p->outer.is_applying = 0;
    p->outer.members = p->outer.eligible = alive_of(p);
    doubt_nobody(p);
    return command_phase(p, STRAIT_OUTER_BEGIN, is_resent);
}

/* Begins it once more, from the weights that were noted; where no step was taken since, those of
 * now are the same, and perhaps not all have noted them. A number of 8 bits that starts over costs
 * no more than an attempt. */
static strait_err begin_again(struct strait_pipeline *p, int64_t done) {
    if (p->outer.members == 0) p->outer.members = UINT64_C(1) << first_replica(p);
    p->outer.attempt = (p->outer.attempt + 1) % (UINT8_MAX + 1);
    return command_phase(p, STRAIT_OUTER_BEGIN, p->outer.sent_at < done);
}

/* What an attempt came to, by the replies of all stages; returns who has not all results. */
static uint64_t note_reports(struct strait_pipeline *p) {
    struct strait_exclusion *x = &p->outer.exclusion;
    for (int i = 0; i < p->n_stages; i++) {
        strait_exclusion_report reports[STRAIT_RUN_REPLICAS] = {{0}};
        for (int r = 0; r < plan_of(p)->replicas[0]; r++) {
            const strait_stage_reply *reply = &p->channel->replies
                                                   .items[strait_run_plan_member(plan_of(p), i, r)];
            if (is_lost(p, r)) continue;
            reports[r] = (strait_exclusion_report){reply->outer.is_complete, reply->outer.missing,
                                                   reply->outer.withheld, reply->outer.rejected};
        }
        strait_exclusion_note(x, reports, p->outer.members, alive_of(p), i == 0);
    }
    return x->late;
}

/* Records whose values were rejected: of replicas that are left out for that. */
static void blame_rejected(struct strait_pipeline *p, uint64_t gone) {
    struct strait_stage_channel *channel = p->channel;
    for (int i = 0; i < channel->n_members && channel->ops->blame != NULL; i++) {
        int stage, replica, is_rejected = 0;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        for (int r = 0; r < plan_of(p)->replicas[0]; r++) {
            const int other = strait_run_plan_member(plan_of(p), stage, r);
            if (r != replica && !is_lost(p, r))
                is_rejected |= (int)(channel->replies.items[other].outer.rejected >> replica & 1);
        }
        if (is_rejected && (gone >> replica & 1) != 0)
            channel->ops->blame(channel, i, STRAIT_MEMBER_DIFFERENCE);
    }
}

/* One replica alone needs nothing from anybody: a swarm hears what cannot be. */
static strait_err refuse_all(struct strait_pipeline *p) {
    struct strait_stage_channel *channel = p->channel;
    if (channel->ops->leave_out == NULL)
        return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                           "no replica received the average of step %lld; check the links "
                           "between replicas and link.deadline",
                           (long long)p->outer.sent_at);
    for (int i = 0; i < channel->n_members; i++)
        if (!is_member_lost(p, i) && !channel->replies.items[i].outer.is_complete)
            channel->ops->blame(channel, i, STRAIT_MEMBER_IMPOSSIBLE);
    return channel->ops->leave_out(channel, 0);
}

/* Goes on without some replicas: the others have all results, or begin again. */
static strait_err leave_out(struct strait_pipeline *p, uint64_t gone) {
    blame_rejected(p, gone);
    if (p->channel->ops->leave_out != NULL) return p->channel->ops->leave_out(p->channel, gone);
    p->channel->lost |= gone;
    return STRAIT_OK;
}

/* Sums until all replicas that are left have the results. Members that nothing comes from are left
 * out of the next attempt; a replica that keeps others from the results, or lacks them still, is
 * given up. */
static strait_err sum(struct strait_pipeline *p, int64_t done) {
    struct strait_exclusion *x = &p->outer.exclusion;
    for (;;) {
        STRAIT_TRY(command_phase(p, STRAIT_OUTER_SUM, 0));
        const uint64_t late = note_reports(p), alive = alive_of(p);
        const int is_last = ++p->outer.n_tries >= ATTEMPTS || (alive & (alive - 1)) == 0;
        if (late == 0) return STRAIT_OK;
        const uint64_t gone = strait_exclusion_gone(x, p->outer.members, alive, is_last);
        if (is_last && gone == 0) return refuse_all(p);
        if (gone != 0) STRAIT_TRY(leave_out(p, gone));
        if ((late & ~gone) == 0) return STRAIT_OK;
        p->outer.members = strait_exclusion_members(x, p->channel->labels, alive_of(p),
                                                    p->outer.eligible);
        STRAIT_TRY(begin_again(p, done));
    }
}

/* Who takes part is settled, and replicas may have other numbers before all have applied it. */
static void note_members(struct strait_pipeline *p) {
    p->outer.recorded = 0;
    for (int r = 0; r < plan_of(p)->replicas[0]; r++)
        if ((p->outer.members >> r & 1) != 0)
            p->outer.recorded |= UINT64_C(1)
                                 << (p->channel->labels != NULL ? p->channel->labels[r] : r);
    p->outer.is_applying = 1;
}

static strait_err finish(struct strait_pipeline *p, int64_t done) {
    const strait_run *run = &p->executor->run;
    double distance = 0.0, size = 0.0;
    if (!p->outer.is_applying) {
        STRAIT_TRY(sum(p, done));
        note_members(p);
    }
    STRAIT_TRY(command_phase(p, STRAIT_OUTER_APPLY, 0));
    for (int i = 0; i < p->channel->n_members; i++) {
        if (is_member_lost(p, i)) continue;
        distance += p->channel->replies.items[i].outer.distance;
        size += p->channel->replies.items[i].outer.size;
    }
    const double tokens = (double)(done - p->outer.averaged_at) * (double)run->train.batch_tokens /
                          plan_of(p)->replicas[0];
    p->outer.divergence = size > 0.0 ? sqrt(distance / size) : 0.0;
    if (tokens > 0.0) p->outer.tokens = tokens; // the last step has several averages
    p->outer.bytes_per_token += take_bytes(p) / p->outer.tokens;
    p->outer.averaged_at = done;
    p->outer.ended_at = p->outer.sent_at;
    p->outer.ended_fragment = p->outer.fragment;
    p->outer.fragment = -1;
    p->outer.is_applying = 0;
    return STRAIT_OK;
}

/* Whether this fragment was sent after this step and applied: a swarm repeats the request when
 * workers were lost. */
static int has_ended(const struct strait_pipeline *p, int64_t done, int fragment) {
    return p->outer.ended_at == done && p->outer.ended_fragment >= fragment;
}

/* One fragment that is sent and applied after the same step. */
static strait_err exchange(struct strait_pipeline *p, int fragment, int64_t done) {
    if (has_ended(p, done, fragment)) return STRAIT_OK;
    if (p->outer.fragment < 0) STRAIT_TRY(begin(p, fragment, done, 0));
    return finish(p, done);
}

/* What is under way crosses the links that the replicas have now. */
static strait_err resend(struct strait_pipeline *p, int64_t done) {
    if (!p->outer.must_resend) return STRAIT_OK;
    doubt_nobody(p);
    STRAIT_TRY(begin_again(p, done));
    p->outer.must_resend = p->outer.n_tries = 0;
    return STRAIT_OK;
}

/* A swarm repeats the request when workers were lost: what is begun or done is not begun anew. */
static strait_err average(struct strait_pipeline *p, int64_t done) {
    const strait_outer_schedule *schedule = &plan_of(p)->outer.schedule;
    const int is_whole = strait_outer_is_whole(schedule, done);
    const int is_due = done >= p->outer.sent_at + schedule->overlap || is_whole;
    STRAIT_TRY(resend(p, done));
    if (p->outer.fragment >= 0 && is_due && schedule->overlap > 0) STRAIT_TRY(finish(p, done));
    const int is_at_once = is_whole || schedule->overlap == 0;
    for (int part = 0; is_at_once && part < strait_outer_n_parts(schedule); part++)
        if (strait_outer_is_sent(schedule, part, done)) STRAIT_TRY(exchange(p, part, done));
    const int fragment = is_at_once ? -1 : strait_outer_sends(schedule, done);
    return fragment >= 0 && p->outer.fragment < 0 ? begin(p, fragment, done, 0) : STRAIT_OK;
}

/* Says once who was lost. */
static void note_lost(struct strait_pipeline *p, int64_t done) {
    const uint64_t lost = p->channel->lost & ~p->outer.known_lost;
    int n_left = 0;
    for (int r = 0; r < plan_of(p)->replicas[0]; r++)
        n_left += !is_lost(p, r);
    for (int r = 0; r < plan_of(p)->replicas[0]; r++)
        if ((lost >> r & 1) != 0)
            (void)snprintf(p->executor->note, sizeof p->executor->note,
                           "replica %d is lost since step %lld, the run goes on with %d of %d: %s",
                           r, (long long)done, n_left, plan_of(p)->replicas[0],
                           p->channel->lost_reason);
    p->outer.known_lost |= lost;
}

strait_err strait_pipeline_average(struct strait_pipeline *p, int64_t done,
                                   strait_executor_report *report) {
    if (!strait_run_plan_has_outer(plan_of(p))) return STRAIT_OK;
    if (p->outer.reported_at != done) p->outer.recorded = 0;
    if (p->outer.reported_at != done) p->outer.bytes_per_token = 0.0;
    p->outer.reported_at = done;
    STRAIT_TRY(average(p, done));
    if (p->outer.recorded != 0) {
        report->average_members = p->outer.recorded;
        report->average_bytes_per_token = p->outer.bytes_per_token;
        report->divergence = p->outer.divergence;
    }
    p->executor->lost = p->channel->lost;
    note_lost(p, done);
    return STRAIT_OK;
}

void strait_pipeline_restart_average(struct strait_pipeline *p, int64_t done, int has_sent) {
    int64_t sent_at = 0;
    p->outer.fragment = has_sent
                            ? strait_outer_in_flight(&plan_of(p)->outer.schedule, done, &sent_at)
                            : -1;
    p->outer.sent_at = sent_at;
    p->outer.must_resend = p->outer.fragment >= 0;
    p->outer.members = p->outer.eligible = 1;
    p->outer.attempt = p->outer.is_applying = 0;
    p->outer.averaged_at = p->outer.ended_at = done;
    p->outer.ended_fragment = INT_MAX;
    (void)take_bytes(p);
}

void strait_pipeline_regroup_average(struct strait_pipeline *p, const int *before) {
    uint64_t members = 0;
    for (int r = 0; r < plan_of(p)->replicas[0]; r++)
        if (before[r] >= 0 && (p->outer.eligible >> before[r] & 1) != 0)
            members |= UINT64_C(1) << r;
    p->outer.members = p->outer.eligible = members;
    p->outer.must_resend = p->outer.fragment >= 0 && !p->outer.is_applying;
}

strait_err strait_pipeline_resume_average(struct strait_pipeline *p,
                                          const struct strait_checkpoint *checkpoint) {
    const int64_t done = strait_checkpoint_step(checkpoint);
    int64_t sent_at = 0;
    const int fragment = strait_outer_in_flight(&plan_of(p)->outer.schedule, done, &sent_at);
    strait_pipeline_restart_average(p, done, 0);
    if (fragment < 0 || !strait_checkpoint_has(checkpoint, STRAIT_OUTER_IN_FLIGHT))
        return STRAIT_OK;
    return begin(p, fragment, sent_at, 1);
}
