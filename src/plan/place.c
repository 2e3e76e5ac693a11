#include "plan/place.h"

/* Whether rank `a` comes before rank `b` in the order in which stages are placed. */
static int is_before(strait_place_rule rule, strait_place_rank a, strait_place_rank b) {
    const int a_first = rule == STRAIT_PLACE_PACK ? a.node : a.local;
    const int b_first = rule == STRAIT_PLACE_PACK ? b.node : b.local;
    const int a_second = rule == STRAIT_PLACE_PACK ? a.local : a.node;
    const int b_second = rule == STRAIT_PLACE_PACK ? b.local : b.node;
    return a_first != b_first ? a_first < b_first : a_second < b_second;
}

void strait_place(strait_place_rule rule, const strait_place_rank *ranks, int n_ranks, int n_stages,
                  int *out) {
    int order[STRAIT_PLACE_RANKS] = {0};
    for (int i = 0; i < n_ranks; i++) {
        int at = i;
        for (; at > 0 && is_before(rule, ranks[i], ranks[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < n_stages; i++)
        out[i] = order[(long)i * n_ranks / n_stages];
}
