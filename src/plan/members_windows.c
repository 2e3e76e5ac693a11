#include "base/alloc.h"
#include "plan/members.h"

/* The most microbatches of any replica of a stage: more slots would stay empty. */
static int largest_share(const strait_members_spec *spec, int stage) {
    int n[STRAIT_GROUPS_MAX] = {0}, most = 1;
    for (int i = 0; i < spec->groups.n_groups; i++) {
        int *of = &n[spec->owners[stage].replica[i]];
        *of += strait_groups_first(&spec->groups, i + 1) - strait_groups_first(&spec->groups, i);
        if (*of > most) most = *of;
    }
    return most;
}

strait_err strait_members_fit_windows(const strait_members_spec *spec, strait_members_stage *stages,
                                      const int *caps, double slack) {
    int *widest, *windows;
    double best = 0.0, now = 0.0;
    strait_err err;
    if (spec->kind != STRAIT_SCHEDULE_WINDOW && spec->kind != STRAIT_SCHEDULE_SPLIT)
        return STRAIT_OK;
    STRAIT_TRY(
        strait_alloc((size_t)spec->n_stages * 2, sizeof *widest, "windows", (void **)&widest));
    windows = widest + spec->n_stages;
    for (int i = 0; i < spec->n_stages; i++) {
        windows[i] = stages[i].window;
        widest[i] = largest_share(spec, i);
        if (caps != NULL && caps[i] < widest[i]) widest[i] = caps[i];
        if (widest[i] < windows[i]) widest[i] = windows[i];
        stages[i].window = widest[i];
    }
    STRAIT_TRY_GOTO(err, done, strait_members_simulate(spec, NULL, &best));
    for (int is_wide = 0; !is_wide;) {
        is_wide = 1;
        for (int i = 0; i < spec->n_stages; i++)
            stages[i].window = windows[i];
        if (strait_members_simulate(spec, NULL, &now) == STRAIT_OK && now <= best * (1 + slack))
            break;
        for (int i = 0; i < spec->n_stages; i++) {
            const int wider = windows[i] + windows[i] / 4 + 1;
            is_wide &= windows[i] == widest[i];
            windows[i] = wider < widest[i] ? wider : widest[i];
        }
    }
done:
    strait_alloc_free(widest);
    return err;
}
