#include "plan_print.h"

#include "progress.h"

#include <math.h>
#include <stdio.h>

/* The sum that the machine of this stage must provide. */
static double memory_of(const strait_outlook *o, int stage) {
    const strait_runner_memory *m = &o->memory[stage];
    return (double)m->weights + (double)m->gradients + (double)m->sums + (double)m->optimizer +
           (double)m->activations + (double)m->codecs + (double)m->data +
           (double)o->messages[stage];
}

/* Compression ratio: 2 bytes per value, divided by the bytes on the link. */
static double ratio(const strait_outlook *o, double bytes) {
    return 2.0 * o->plan.shape.width * o->pipe.microbatch_tokens / bytes;
}

/* Memory is that of the busiest moment: slots and queued messages included. */
static void print_stages(const strait_run *run, const strait_outlook *o) {
    printf("stage  layers      memory  slots  work/microbatch  idle  device\n");
    for (int i = 0; i < o->pipe.n_stages; i++) {
        char bytes[32];
        strait_progress_bytes(memory_of(o, i), bytes);
        printf("%5d  %6d  %10s  %5d  %12.2f ms  %3.0f%%  %s:%d\n", i,
               o->plan.stage_layers[i].last - o->plan.stage_layers[i].first, bytes, o->windows[i],
               1e3 * strait_pipe_work_s(&o->pipe, i), 100 * o->seen[i].bubble, run->device.kind,
               strait_run_ordinal(run, i));
    }
}

/* Of the stage whose tables weigh most: the first and the last also have embedding and head. */
static void print_tables(const strait_outlook *o) {
    const strait_shape *shape = &o->plan.shape;
    double most = 0;
    int stage = 0;
    for (int i = 0; i < o->pipe.n_stages; i++) {
        const double share = (double)o->params[i].tables / (double)o->params[i].all;
        if (share > most) most = share, stage = i;
    }
    if (most == 0) return;
    printf("tables %lld rows for %lld token ids; at most %.1f%% of a stage's parameters (stage %d: "
           "%.1fM of %.1fM)\n",
           (long long)strait_shape_table_rows(shape), (long long)shape->vocab, 100 * most, stage,
           1e-6 * (double)o->params[stage].tables, 1e-6 * (double)o->params[stage].all);
}

/* The most of any stage: crossings for neighbours that are replaced (stage/crossing_log.h). */
static void print_kept(const strait_outlook *o) {
    char bytes[32];
    size_t most = 0;
    for (int i = 0; i < o->pipe.n_stages; i++)
        if (o->memory[i].kept > most) most = o->memory[i].kept;
    strait_progress_bytes((double)most, bytes);
    if (o->pipe.n_stages > 1)
        printf("kept   up to %s more per stage in a swarm: crossings, so that a lost stage is "
               "computed again alone\n",
               bytes);
}

static void print_links(const strait_outlook *o) {
    const double seconds = o->result.seconds * strait_pipe_steps(&o->pipe, 1); // of all simulated
    if (o->pipe.n_stages < 2) return;
    printf("link  bytes/token forward  backward       ratio      wire busy\n");
    for (int i = 0; i < o->pipe.n_stages - 1; i++) {
        const strait_pipe_link *l = &o->links[i];
        printf("%d-%-2d  %19.2f  %8.2f  %4.0fx %4.0fx  %4.0f%% %4.0f%%\n", i, i + 1,
               l->forward_bytes / o->pipe.microbatch_tokens,
               l->backward_bytes / o->pipe.microbatch_tokens, ratio(o, l->forward_bytes),
               ratio(o, l->backward_bytes), 100 * o->seen[i].activations_s / seconds,
               100 * o->seen[i + 1].gradients_s / seconds);
    }
}

/* What averages of weights cost (train.outer). */
static void print_average(const strait_outlook *o, int stage) {
    const strait_outer_schedule *outer = &o->plan.outer.schedule;
    const strait_runner_memory *m = &o->memory[stage];
    const int n = o->plan.replicas[stage];
    char bytes[32], attention[32],
        more[96] = "",
        warmup[64] = ""; // in which there are averages, too, and in the figures beside
    if (outer->warmup > 0)
        (void)snprintf(warmup, sizeof warmup, " and after each of the first %lld",
                       (long long)outer->warmup);
    strait_progress_bytes(m->averaged.fragment * outer->fragments, bytes);
    strait_progress_bytes(m->averaged.attention, attention);
    if (outer->attention_every > 0)
        (void)snprintf(more, sizeof more, ", %s of attention every %lld", attention,
                       (long long)outer->attention_every);
    printf("average stage %d: %d replicas, each sends %s every %lld steps in %d part%s%s%s, %.4g "
           "bytes per token, %.3g s per step\n",
           stage, n, bytes, (long long)outer->sync_every, outer->fragments,
           strait_progress_plural(outer->fragments), more, warmup,
           m->reduced * n / (o->pipe.microbatch_tokens * o->pipe.n_microbatches),
           strait_limits_average_s(&o->plan, stage, m->averaged, o->result.seconds - o->average_s));
    printf(
        "relay  stage %d: two of them that meet at a relay send %.3g Mb/s of averages through it "
        "in each direction\n",
        stage, strait_limits_pair_bps(&o->plan, m->averaged, n, o->result.seconds) / 1e6);
}

/* What replicas cost and who has them. */
static void print_replicas(const strait_outlook *o) {
    const int averages = strait_run_plan_has_outer(&o->plan);
    for (int i = 0; i < o->pipe.n_stages; i++) {
        char bytes[32];
        if (o->plan.replicas[i] == 1) continue;
        if (averages) {
            print_average(o, i);
            continue;
        }
        strait_progress_bytes(o->memory[i].reduced, bytes);
        printf("reduce stage %d: %d replicas, each sends %s of gradients per step\n", i,
               o->plan.replicas[i], bytes);
    }
    if (o->plan.n_members > o->plan.n_stages && !averages)
        printf("reduce %.3g s of the step, after the last microbatch\n", o->members.reduce_s);
}

/* How busy the wires of homes are: the busiest replica of each stage. */
static void print_homes(const strait_outlook *o) {
    for (int i = 0, member = 0; i < o->pipe.n_stages; i++) {
        const int first = member;
        double up_s = 0.0, down_s = 0.0;
        for (; member < first + o->plan.replicas[i]; member++) {
            up_s = fmax(up_s, o->members.use[member].up_s);
            down_s = fmax(down_s, o->members.use[member].down_s);
        }
        if (o->plan.up_bps[first] <= 0 && o->plan.down_bps[first] <= 0) continue;
        printf("home   stage %d: %.4g Mb/s up %.0f%% busy, %.4g Mb/s down %.0f%% busy\n", i,
               o->plan.up_bps[first] / 1e6, 100 * up_s / o->result.seconds,
               o->plan.down_bps[first] / 1e6, 100 * down_s / o->result.seconds);
    }
}

static void print_more(const strait_outlook *o) {
    const strait_outlook_more *more = &o->more;
    const int has_outer = strait_run_plan_has_outer(&o->plan);
    if (more->gain < 1.005)
        printf("more   %s brings nothing here\n",
               has_outer ? "another pipeline" : "one more machine");
    else if (has_outer)
        printf("more   another pipeline, of %d machine%s: %.2f times the speed, %.0f tokens/s\n",
               more->n_machines, strait_progress_plural(more->n_machines), more->gain,
               more->gain * o->result.tokens_per_s);
    else
        printf("more   one more machine, as a replica of stage %d: %.2f times the speed, %.0f "
               "tokens/s\n",
               more->stage, more->gain, more->gain * o->result.tokens_per_s);
}

/* Stages that share this machine's cores compute one after the other, however the schedule orders
 * them: their work adds up. */
static double shared_seconds(const strait_outlook *o) {
    double work = 0.0;
    for (int i = 0; i < o->pipe.n_stages; i++)
        work += strait_pipe_work_s(&o->pipe, i) * o->pipe.n_microbatches + o->stages[i].update_s;
    return work > o->result.seconds ? work : o->result.seconds;
}

static void print_shared(const strait_outlook *o) {
    if (o->pipe.n_stages < 2) return;
    const double seconds = shared_seconds(o);
    printf("here   %.4g s, %.0f tokens/s at most if all stages share one such device\n", seconds,
           o->pipe.microbatch_tokens * o->pipe.n_microbatches / seconds);
}

static void print_limit(const strait_outlook *o) {
    const strait_limit *l = &o->limit;
    printf("limit  %s", strait_limit_name(l->kind));
    const int is_stage = strait_limits_needs_members(&o->plan) &&
                         l->kind == STRAIT_LIMIT_SERIALISATION;
    if (l->kind == STRAIT_LIMIT_COMPUTE || is_stage) printf(", most on stage %d", l->where);
    if (l->kind > STRAIT_LIMIT_BUBBLE && !is_stage)
        printf(", most on link %d-%d", l->where, l->where + 1);
    printf("; time per step that removing each would save:");
    for (int k = 0; k < STRAIT_LIMIT_KINDS; k++)
        printf(" %s %.3g s%s", strait_limit_name((strait_limit_kind)k),
               l->saved[k] > 1e-12 ? l->saved[k] : 0.0, // rounding may make it negative
               k + 1 < STRAIT_LIMIT_KINDS ? "," : "\n");
}

void strait_plan_print(const char *path, const strait_run *run, const strait_outlook *o) {
    const strait_run_plan *r = &o->plan;
    char late[64] = "";
    if (r->n_late == r->n_stages)
        (void)snprintf(late, sizeof late, ", updates one step late");
    else if (r->n_late > 0)
        (void)snprintf(late, sizeof late, ", updates of the first %d one step late", r->n_late);
    printf("%s: %d stage%s, %s, %lld microbatch%s of %.0f tokens%s\n", path, r->n_stages,
           strait_progress_plural(r->n_stages), strait_schedule_name(r->schedule),
           (long long)r->n_microbatches, r->n_microbatches == 1 ? "" : "es",
           o->pipe.microbatch_tokens, late);
    printf("each %s on a device of its own: %s\n\n",
           r->n_members > r->n_stages ? "replica of a stage" : "stage", o->times.device);
    print_stages(run, o);
    print_links(o);
    print_tables(o);
    printf("\nstep   %.4g s, %.0f tokens/s, %.3f of the speed with infinitely fast links\n",
           o->result.seconds, o->result.tokens_per_s, o->unlimited_s / o->result.seconds);
    print_shared(o);
    if (o->metered_s > 0.0)
        printf("meter  %.4g s per step, one inbound wire per stage at %.4g Mb/s, %.4g ms latency\n",
               o->metered_s, r->meter_bps / 1e6, 1e3 * r->meter_delay_s);
    print_replicas(o);
    print_homes(o);
    print_limit(o);
    print_more(o);
    print_kept(o);
}

/* The same figures as the text, without rounding for people. */
void strait_plan_print_json(const strait_run *run, const strait_outlook *o) {
    printf("{\"seconds\": %.6g, \"tokens_per_s\": %.6g, \"bubble\": %.4f, \"of_unlimited\": %.4f, "
           "\"limit\": \"%s\", \"where\": %d, \"meter_seconds\": %.6g, "
           "\"more\": {\"stage\": %d, \"gain\": %.4f, \"machines\": %d}, \"stages\": [",
           o->result.seconds, o->result.tokens_per_s, o->result.bubble,
           o->unlimited_s / o->result.seconds, strait_limit_name(o->limit.kind), o->limit.where,
           o->metered_s, o->more.stage, o->more.gain, o->more.n_machines);
    for (int i = 0; i < o->pipe.n_stages; i++)
        printf("%s{\"layers\": %d, \"parameters\": %lld, \"table_parameters\": %lld, "
               "\"memory_bytes\": %.0f, \"kept_bytes\": %zu, \"slots\": %d, "
               "\"idle\": %.4f, \"replicas\": %d, \"reduce_bytes\": %.0f, \"device\": \"%s:%d\"}",
               i > 0 ? ", " : "", o->plan.stage_layers[i].last - o->plan.stage_layers[i].first,
               (long long)o->params[i].all, (long long)o->params[i].tables, memory_of(o, i),
               o->memory[i].kept, o->windows[i], o->seen[i].bubble, o->plan.replicas[i],
               o->memory[i].reduced, run->device.kind, strait_run_ordinal(run, i));
    printf("], \"links\": [");
    for (int i = 0; i < o->pipe.n_stages - 1; i++)
        printf("%s{\"forward_bytes\": %.0f, \"backward_bytes\": %.0f}", i > 0 ? ", " : "",
               o->links[i].forward_bytes, o->links[i].backward_bytes);
    printf("]}\n");
}
