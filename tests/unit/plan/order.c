/* The order of actions that exact bits depend on, and freedom from deadlock: whole pipelines with a
 * network that delivers in random order and stages that run at random times. */
#include "rig.h"

enum {
    MOST_MICROBATCHES = 24
};

/* A stage as an executor has it, with its own count of what was done. */
typedef struct actor {
    strait_schedule_spec spec;
    strait_schedule_state state;
    unsigned char inputs[MOST_MICROBATCHES], gradients[MOST_MICROBATCHES]; // arrived
    int slots[MOST_MICROBATCHES];                                          // microbatch, or -1
    int n_done[4];                                                         // by kind of action
    strait_schedule_action last;
} actor;

typedef struct world {
    actor actors[MOST_STAGES];
    int n_stages, n_microbatches;
    struct {
        int to, is_gradient, microbatch;
    } mail[2 * MOST_STAGES * MOST_MICROBATCHES];
    int n_mail;
    dice dice;
} world;

static void post(world *w, int to, int is_gradient, int microbatch) {
    if (to < 0 || to >= w->n_stages) return;
    w->mail[w->n_mail].to = to;
    w->mail[w->n_mail].is_gradient = is_gradient;
    w->mail[w->n_mail++].microbatch = microbatch;
}

static void deliver_any(world *w) {
    if (w->n_mail == 0) return;
    const int i = dice_roll(&w->dice, w->n_mail);
    actor *a = &w->actors[w->mail[i].to];
    unsigned char *arrived = w->mail[i].is_gradient ? a->gradients : a->inputs;
    CHECK(!arrived[w->mail[i].microbatch]);
    arrived[w->mail[i].microbatch] = 1;
    w->mail[i] = w->mail[--w->n_mail];
}

/* Checks what the model and the arithmetic require of every action. */
static void check_action(actor *a, strait_schedule_action action) {
    const int m = action.microbatch, is_last = a->spec.stage == a->spec.n_stages - 1;
    int *slot = &a->slots[strait_schedule_slot(&a->spec, m)];
    const int n_forward = a->n_done[STRAIT_ACTION_FORWARD];
    const int n_backward = a->n_done[STRAIT_ACTION_BACKWARD] + a->n_done[STRAIT_ACTION_INPUT];
    const int n_weights = a->n_done[STRAIT_ACTION_BACKWARD] + a->n_done[STRAIT_ACTION_WEIGHTS];
    switch (action.kind) {
    case STRAIT_ACTION_FORWARD:
        CHECK(m == n_forward && *slot == -1);
        CHECK(a->spec.stage == 0 || a->inputs[m]);
        CHECK(n_forward - n_weights < a->spec.window);
        *slot = m;
        break;
    case STRAIT_ACTION_BACKWARD:
    case STRAIT_ACTION_INPUT:
        CHECK(m == n_backward && m < n_forward && *slot == m);
        CHECK(is_last || a->gradients[m]);
        if (is_last) CHECK(a->last.kind == STRAIT_ACTION_FORWARD && a->last.microbatch == m);
        if (action.kind == STRAIT_ACTION_BACKWARD) *slot = -1;
        CHECK(n_backward - n_weights < a->spec.window); // deferred weight gradients
        break;
    case STRAIT_ACTION_WEIGHTS:
        CHECK(m == n_weights && m < n_backward && *slot == m);
        *slot = -1;
        break;
    default: fail_msg("%s is no action to make", strait_schedule_action_name(action.kind));
    }
    a->n_done[action.kind]++;
    a->last = action;
}

/* Executes one action of one stage; 0 when it must wait or has finished. */
static int act(world *w, int stage) {
    actor *a = &w->actors[stage];
    const int n = w->n_microbatches;
    a->state.n_inputs = strait_schedule_leading(a->inputs, a->state.n_inputs, n);
    a->state.n_gradients = strait_schedule_leading(a->gradients, a->state.n_gradients, n);
    const strait_schedule_action action = strait_schedule_next(&a->spec, &a->state);
    if (action.kind == STRAIT_ACTION_WAIT || action.kind == STRAIT_ACTION_FINISH) return 0;
    check_action(a, action);
    strait_schedule_done(&a->state, action);
    if (action.kind == STRAIT_ACTION_FORWARD) post(w, stage + 1, 0, action.microbatch);
    if (action.kind == STRAIT_ACTION_BACKWARD || action.kind == STRAIT_ACTION_INPUT)
        post(w, stage - 1, 1, action.microbatch);
    return 1;
}

static void make_world(world *w, uint64_t seed) {
    *w = (world){.dice = {.seed = seed}};
    w->n_stages = 1 + dice_roll(&w->dice, 8);
    w->n_microbatches = 1 + dice_roll(&w->dice, MOST_MICROBATCHES);
    const strait_schedule_kind kind = (strait_schedule_kind)dice_roll(&w->dice, 4);
    for (int i = 0; i < w->n_stages; i++) {
        actor *a = &w->actors[i];
        /* Any window, also one that grows from stage to stage. */
        const int window = kind == STRAIT_SCHEDULE_FILL
                               ? w->n_microbatches
                               : 1 + dice_roll(&w->dice, w->n_microbatches);
        a->spec = (strait_schedule_spec){kind, w->n_stages, i, w->n_microbatches, window, 0, 0};
        a->last.kind = STRAIT_ACTION_WAIT;
        CHECK_OK(strait_schedule_check(&a->spec));
        for (int k = 0; k < MOST_MICROBATCHES; k++)
            a->slots[k] = -1;
    }
}

static void play(world *w) {
    for (int n_idle = 0; n_idle < 8 * w->n_stages || w->n_mail > 0; n_idle++) {
        if (dice_roll(&w->dice, 3) == 0) deliver_any(w);
        if (act(w, dice_roll(&w->dice, w->n_stages))) n_idle = 0;
    }
    for (int moved = 1; moved;) { // let stages finish that were not picked at random
        while (w->n_mail > 0)
            deliver_any(w);
        moved = 0;
        for (int i = 0; i < w->n_stages; i++)
            moved |= act(w, i);
    }
}

static void keeps_order_for_any_arrivals_and_windows(void **state) {
    (void)state;
    static world w;
    for (uint64_t seed = 0; seed < 400; seed++) {
        make_world(&w, seed);
        play(&w);
        for (int i = 0; i < w.n_stages; i++) {
            const actor *a = &w.actors[i];
            if (strait_schedule_next(&a->spec, &a->state).kind != STRAIT_ACTION_FINISH)
                fail_msg("seed %llu: stage %d of %d never finished", (unsigned long long)seed, i,
                         w.n_stages);
            CHECK(a->n_done[STRAIT_ACTION_FORWARD] == w.n_microbatches);
            CHECK(a->n_done[STRAIT_ACTION_BACKWARD] + a->n_done[STRAIT_ACTION_INPUT] ==
                  w.n_microbatches);
            CHECK(a->n_done[STRAIT_ACTION_BACKWARD] + a->n_done[STRAIT_ACTION_WEIGHTS] ==
                  w.n_microbatches);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_order_for_any_arrivals_and_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
