/* adamw.c - AdamW with a second moment for every weight. */
#include "optim/adamw.h"

#include "base/alloc.h"

/* Two moments of the shape of the weight. */
static int describe_states(const strait_optim_spec *spec, const strait_param *param,
                           strait_optim_state_spec out[STRAIT_OPTIM_STATES]) {
    (void)spec;
    const strait_tensor w = param->value;
    out[0] = (strait_optim_state_spec){'m', STRAIT_F32, w.rows, w.cols, .is_linear = 1};
    out[1] = (strait_optim_state_spec){'v', STRAIT_F32, w.rows, w.cols, .is_linear = 0};
    return 2;
}

strait_err strait_adamw_plan(void *scratch, const strait_optim_spec *spec,
                             const strait_optim_update *updates, int n, struct strait_slab *slab) {
    struct strait_adamw_scratch *adamw = scratch;
    (void)spec, (void)updates;
    (void)slab; // the kernel works in place
    return strait_alloc((size_t)n, sizeof *adamw->items, "AdamW updates", (void **)&adamw->items);
}

/* Only the list of updates; the moments belong to the optimizer. */
void strait_adamw_release(void *scratch) {
    strait_alloc_free(((struct strait_adamw_scratch *)scratch)->items);
}

/* One call for all parameters: a GPU updates them in few launches. */
strait_err strait_adamw_step(void *scratch, const strait_optim_step *at,
                             const strait_optim_update *updates, int n) {
    strait_adamw_item *items = ((struct strait_adamw_scratch *)scratch)->items;
    for (int i = 0; i < n; i++) {
        const strait_optim_update *u = &updates[i];
        items[i] = (strait_adamw_item){.weight = u->weight,
                                       .m = u->states[0],
                                       .v = u->states[1],
                                       .grad = u->grad,
                                       .params = {.learning_rate = u->learning_rate,
                                                  .beta1 = at->spec->beta1,
                                                  .beta2 = at->spec->beta2,
                                                  .epsilon = at->spec->epsilon,
                                                  .weight_decay = u->weight_decay,
                                                  .step = at->step,
                                                  .copy = u->copy}};
    }
    return at->stream->backend->kernels->adamw_each(at->stream, items, n, at->scale);
}

const struct strait_optimizer_ops strait_optimizer_adamw = {
    .name = "adamw",
    .states = describe_states,
    .scratch_size = sizeof(struct strait_adamw_scratch),
    .plan = strait_adamw_plan,
    .release = strait_adamw_release,
    .step = strait_adamw_step,
    .checks_norm = 1,
};
