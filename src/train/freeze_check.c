#include "train/freeze_check.h"

#include "stage/runner_state.h"

#include <stdio.h>
#include <string.h>

/* One pattern, and whether a name was like it. */
struct search {
    char pattern[STRAIT_OPTIM_PATTERNS];
    int is_found;
};

static strait_err compare(void *user, struct strait_stream *stream, const char *name,
                          strait_tensor tensor, int is_state) {
    struct search *search = user;
    (void)stream, (void)tensor;
    if (!is_state && strait_optim_is_named(search->pattern, name)) search->is_found = 1;
    return STRAIT_OK;
}

strait_err strait_freeze_check(const strait_run_plan *plan) {
    const char *at = plan->optim.freeze;
    for (at += strspn(at, ", "); *at != '\0'; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ", ");
        struct search search = {0};
        (void)snprintf(search.pattern, sizeof search.pattern, "%.*s", (int)n, at);
        for (int i = 0; i < plan->n_stages && !search.is_found; i++)
            STRAIT_TRY(strait_runner_state_describe(plan, i, compare, &search));
        if (!search.is_found)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "train.freeze: no parameter has a name like \"%s\"; strait inspect "
                               "lists the names of a checkpoint",
                               search.pattern);
        at += n;
    }
    return STRAIT_OK;
}
