#include "plan/groups.h"

#include <stddef.h>

/* The replicas of all stages get whole streams where that is possible: up to four of them if their
 * common multiple divides the groups. Otherwise as many streams as the next power of two: each
 * replica then owns about a stream or more. */
strait_groups strait_groups_make(int n_microbatches, int n_groups, int replicas_max) {
    static const int common[] = {1, 1, 2, 6, 12}; // multiples of all numbers up to the index
    strait_groups groups = {n_microbatches, n_groups, 1};
    if (groups.n_groups > n_microbatches) groups.n_groups = n_microbatches;
    if (replicas_max < (int)(sizeof common / sizeof *common) &&
        groups.n_groups % common[replicas_max] == 0) {
        groups.n_streams = common[replicas_max];
        return groups;
    }
    while (groups.n_streams < replicas_max && 2 * groups.n_streams <= groups.n_groups)
        groups.n_streams *= 2;
    return groups;
}

/* Sizes differ by at most one microbatch. */
int strait_groups_first(const strait_groups *groups, int group) {
    return (int)((long long)group * groups->n_microbatches / groups->n_groups);
}

int strait_groups_of(const strait_groups *groups, int microbatch) {
    int group = (int)((long long)microbatch * groups->n_groups / groups->n_microbatches);
    while (strait_groups_first(groups, group + 1) <= microbatch)
        group++;
    return group;
}

/* Reverses the digits of a number below n, which is 2 or 4 or another power of two, or 3 times one:
 * the lowest digits, which change first, become the highest. */
static int reverse_digits(int value, int n) {
    int reversed = 0;
    for (int left = n; left > 1;) {
        const int radix = left % 2 == 0 ? 2 : left;
        reversed = radix * reversed + value % radix;
        value /= radix;
        left /= radix;
    }
    return reversed;
}

/* The streams take turns in the order of reversed digits: 0, 2, 1, 3 of four and 0, 3, 1, 4, 2, 5
 * of six. Any contiguous share of the groups then comes up about as often as its size says. */
void strait_groups_order(const strait_groups *groups, int order[STRAIT_GROUPS_MAX]) {
    const int n = groups->n_groups, streams = groups->n_streams;
    int done = 0;
    for (int turn = 0; done < n; turn++)
        for (int i = 0; i < streams; i++) {
            const int stream = reverse_digits(i, streams);
            const int group = stream * n / streams + turn;
            if (group < (stream + 1) * n / streams) order[done++] = group;
        }
}

int strait_groups_list(const strait_groups *groups, const strait_group_owners *owners, int replica,
                       int *out) {
    int order[STRAIT_GROUPS_MAX];
    int n = 0;
    strait_groups_order(groups, order);
    for (int i = 0; i < groups->n_groups; i++) {
        if (owners->replica[order[i]] != replica) continue;
        const int end = strait_groups_first(groups, order[i] + 1);
        for (int m = strait_groups_first(groups, order[i]); m < end; m++)
            out[n++] = m;
    }
    return n;
}

int strait_groups_count(const strait_groups *groups, const strait_group_owners *owners,
                        int replica) {
    int n = 0;
    for (int i = 0; i < groups->n_groups; i++)
        if (owners->replica[i] == replica)
            n += strait_groups_first(groups, i + 1) - strait_groups_first(groups, i);
    return n;
}

/* Speeds that are unknown or nonsense count as equal: shares change only how long a step takes. */
void strait_groups_share(const strait_groups *groups, int n_replicas, const double *speeds,
                         strait_group_owners *out) {
    double all = 0.0;
    int is_known = speeds != NULL;
    for (int i = 0; is_known && i < n_replicas; i++) {
        is_known = speeds[i] > 0.0 && speeds[i] < 1e300;
        all += speeds[i];
    }
    *out = (strait_group_owners){{0}};
    double before = 0.0;
    for (int i = 0, first = 0; i < n_replicas; i++) {
        before += is_known ? speeds[i] / all : 1.0 / n_replicas;
        int end = (int)(before * groups->n_groups + 0.5);
        const int most = groups->n_groups - (n_replicas - 1 - i); // the others need one each
        if (end <= first) end = first + 1;
        if (end > most || i == n_replicas - 1) end = most;
        for (; first < end; first++)
            out->replica[first] = (unsigned char)i;
    }
}

static int held_by(const strait_groups *groups, const int *order, int first, int end) {
    int mine[STRAIT_GROUPS_MAX];
    int n = 0;
    for (int i = 0; i < groups->n_groups; i++)
        if (order[i] >= first && order[i] < end) mine[n++] = order[i];
    return strait_pairwise_most_held(groups->n_groups, mine, n);
}

int strait_groups_buffers(const strait_groups *groups, int n_replicas) {
    int order[STRAIT_GROUPS_MAX];
    int most = 0;
    strait_groups_order(groups, order);
    if (n_replicas == 1) return held_by(groups, order, 0, groups->n_groups);
    for (int first = 0; first < groups->n_groups; first++)
        for (int end = first + 1; end <= groups->n_groups - (n_replicas - 1) + first; end++) {
            if (end > groups->n_groups) break;
            const int held = held_by(groups, order, first, end);
            if (held > most) most = held;
        }
    return most;
}
