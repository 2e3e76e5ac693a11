/* resources.c - compares what a run will take with what this machine has, before it is taken. */
#include <strait/session.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "config/run_plan.h"
#include "stage/loader.h"
#include "stage/runner_state.h"
#include "store/checkpoint.h"
#include "train/cluster/cluster.h"
#include "train/fit.h"

/* ---- memory ---- */

/* What is free now. Asked once, because the device must be opened to know. */
struct machine {
    strait_machine_memory host;
    int is_host;                       // the device is the host
    double devices[STRAIT_RUN_STAGES]; // bytes free on the device of each stage
};

/* The bytes that a run takes from each. Pages of shards are not counted: the system drops them
 * when memory is short. */
struct need {
    double host;
    double devices[STRAIT_RUN_STAGES]; // on the device of each stage, by all stages there
};

static struct need need_of(const strait_run *run, const strait_trainer_info *info, int is_on_host) {
    const strait_trainer_memory *m = &info->memory;
    const double of_node = strait_cluster_share(run, strait_run_members(run), 0);
    const double of_rank = strait_cluster_share(run, strait_run_members(run), 1);
    const double all = (double)m->total - (double)m->cache;
    struct need need = {.host = all * of_node};
    if (is_on_host) return need;
    for (int i = 0; i < info->n_stages; i++)
        for (int k = 0; k < info->n_stages; k++)
            if (info->stages[k].ordinal == info->stages[i].ordinal)
                need.devices[i] += of_rank * info->stages[k].replicas *
                                   (double)info->stages[k].planned; // of each replica
    need.host = (double)m->messages + (double)m->program + (double)m->data - (double)m->cache;
    need.host *= of_node;
    return need;
}

/* For strait_fit_suggest. */
static strait_err measure(void *user, const strait_run *run, double *lacks, double *needs) {
    const struct machine *machine = user;
    strait_trainer_info info;
    STRAIT_TRY(strait_trainer_plan(run, &info));
    const struct need need = need_of(run, &info, machine->is_host);
    *lacks = machine->host.spare > 0.0 ? need.host - machine->host.spare : -need.host;
    *needs = need.host;
    for (int i = 0; !machine->is_host && i < info.n_stages; i++) {
        if (need.devices[i] - machine->devices[i] < *lacks) continue;
        *lacks = need.devices[i] - machine->devices[i];
        *needs = need.devices[i];
    }
    return STRAIT_OK;
}

static strait_err refuse(const strait_run *run, struct machine *machine, double lacks,
                         double needs) {
    char changes[STRAIT_FIT_TEXT], need[32], spare[32], limit[32];
    const int is_host = machine->is_host || needs - lacks == machine->host.spare;
    const int is_group = is_host && machine->host.group_limit > 0.0;
    strait_fit_suggest(run, measure, machine, 0, changes);
    strait_fit_bytes(needs, need);
    strait_fit_bytes(needs - lacks, spare);
    strait_fit_bytes(machine->host.group_limit, limit);
    return STRAIT_FAIL(
        STRAIT_ENOMEM, "the run needs %s of %smemory, and %s %s%s%s%s%s%s", need,
        is_host ? "" : "device ", spare,
        is_group ? "are left in this control group (limit " : "are free", is_group ? limit : "",
        is_group ? ")" : "", changes[0] != '\0' ? "; it would fit with " : "", changes,
        changes[0] != '\0'
            ? ""
            : "; reduce several of model.width, model.layers, model.context and model.vocab");
}

/* Each device is opened once, however many stages compute on it. */
static strait_err read_devices(const strait_run *run, struct machine *out) {
    for (int i = 0; i < run->stages.count; i++) {
        const strait_backend_spec spec = strait_run_plan_backend(run, i);
        int same = 0;
        while (strait_run_ordinal(run, same) != spec.ordinal)
            same++;
        if (same < i)
            out->devices[i] = out->devices[same];
        else
            STRAIT_TRY(strait_backend_free_bytes(&spec, &out->devices[i]));
    }
    out->is_host = out->devices[0] <= 0.0;
    return STRAIT_OK;
}

strait_err strait_trainer_check_memory(const struct strait_run *run) {
    struct machine machine = {.host = strait_machine_read_memory("")};
    double lacks = 0.0, needs = 0.0;
    STRAIT_TRY(read_devices(run, &machine));
    STRAIT_TRY(measure(&machine, run, &lacks, &needs));
    return lacks <= 0.0 ? STRAIT_OK : refuse(run, &machine, lacks, needs);
}

strait_err strait_resources_fit_microbatch(strait_run *run) {
    struct machine machine = {.host = strait_machine_read_memory("")};
    STRAIT_TRY(read_devices(run, &machine));
    return strait_fit_microbatch(run, measure, &machine);
}

/* ---- disk ---- */

static strait_err add_tensor(void *user, struct strait_stream *stream, const char *name,
                             strait_tensor tensor, int is_state) {
    (void)stream;
    (void)name;
    (void)is_state;
    *(double *)user += (double)strait_tensor_bytes(tensor);
    return STRAIT_OK;
}

/* Bytes of one checkpoint of all stages, headers apart. */
static strait_err measure_checkpoint(const strait_run *run, double *out) {
    struct strait_loader *loader = NULL;
    strait_run_plan plan;
    STRAIT_TRY(strait_loader_open(run, &loader)); // the data states the vocabulary
    strait_err err = strait_run_plan_init(run, strait_loader_vocab(loader), &plan);
    strait_loader_close(&loader);
    *out = 0.0;
    for (int i = 0; err == STRAIT_OK && i < plan.n_stages; i++)
        err = strait_runner_state_describe(&plan, i, add_tensor, out);
    return err;
}

/* How many checkpoints the rest of the run writes, as far as that matters here: a new one is
 * complete before the oldest is removed, so there is one more at once than are kept. */
static double count_written(int64_t left, int64_t every, int64_t keep) {
    const int64_t n = every > 0 ? (left + every - 1) / every : 1; // the last, or when interrupted
    return (double)(n < keep + 1 ? n : keep + 1);
}

/* How many more checkpoints there are at once than now. Old ones are removed as new ones come, so
 * only the difference takes space. */
static double count_added(int64_t left, int64_t every, int64_t keep, int n_there) {
    const double most = (double)keep + 1.0;
    double n = count_written(left, every, keep);
    if ((double)n_there + n > most) n = most - (double)n_there;
    return n < 1.0 ? 1.0 : n;
}

strait_err strait_session_check_disk(const struct strait_run *run, const char *folder,
                                     int64_t step) {
    double each = 0.0;
    int64_t *steps = NULL;
    int n_there = 0;
    const double spare = strait_machine_spare_disk(folder);
    if (spare < 0.0 || step >= run->train.steps) return STRAIT_OK; // unknown, or nothing to write
    STRAIT_TRY(strait_checkpoint_list(folder, &steps, &n_there));
    strait_alloc_free(steps);
    STRAIT_TRY(measure_checkpoint(run, &each));
    const int64_t left = run->train.steps - step, every = run->train.save_every;
    const int64_t keep = run->train.keep_checkpoints;
    const double n = count_added(left, every, keep, n_there);
    if (n * each <= spare) return STRAIT_OK;
    const int fits_kept = count_added(left, every, 1, n_there) * each <= spare;
    const int fits_last = count_added(left, 0, keep, n_there) * each <= spare;
    char need[32], one[32], has[32];
    strait_fit_bytes(n * each, need);
    strait_fit_bytes(each, one);
    strait_fit_bytes(spare, has);
    return STRAIT_FAIL(
        STRAIT_EIO,
        "%s: no space for the checkpoints: they take %s (%.0f of %s at once), and %s "
        "are free; %s%s%sa folder on another disk",
        folder, need, n, one, has,
        fits_kept || fits_last ? "they would fit with " : "free some space, or choose ",
        fits_kept ? "train.keep_checkpoints=1, " : "",
        fits_last   ? "train.save_every=0 (only at the end), or in "
        : fits_kept ? "or in "
                    : "");
}
