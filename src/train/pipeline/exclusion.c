#include "train/pipeline/exclusion.h"

#include <string.h>

static uint64_t bit(int i) {
    return UINT64_C(1) << i;
}

static int has(uint64_t set, int i) {
    return (int)(set >> i & 1);
}

static int count(uint64_t set) {
    int n = 0;
    for (; set != 0; set &= set - 1)
        n++;
    return n;
}

static int lowest(uint64_t set) {
    int i = 0;
    while (i < STRAIT_RUN_REPLICAS - 1 && !has(set, i))
        i++;
    return i;
}

static int label_of(const int *labels, int replica) {
    return labels != NULL ? labels[replica] : replica;
}

void strait_exclusion_begin(struct strait_exclusion *x, const int *labels, int n) {
    uint64_t present = 0;
    for (int r = 0; r < n; r++)
        present |= bit(label_of(labels, r));
    for (int i = 0; i < STRAIT_EXCLUSION_LABELS; i++) {
        if (!has(present, i)) x->opponents[i] = x->turns[i] = 0;
        x->turns[i] &= present; // another pipeline may get the label of one that is gone
    }
    memcpy(x->turns_before, x->turns, sizeof x->turns);
    x->n_disputed = x->is_disputed ? x->n_disputed + 1 : 0;
    x->is_disputed = 0;
    x->late = 0;
    memset(x->accusers, 0, sizeof x->accusers);
    memset(x->rejectors, 0, sizeof x->rejectors);
    memset(x->now, 0, sizeof x->now);
}

/* Whom a replica says it lacks something from. An owner that lacks parts itself has no results to
 * send. */
static uint64_t accused_by(const strait_exclusion_report *reports, int replica, uint64_t members,
                           uint64_t alive) {
    uint64_t accused = reports[replica].missing & members;
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++)
        if (has(reports[replica].withheld & alive, r) &&
            (reports[r].missing == 0 || reports[r].is_complete))
            accused |= bit(r);
    return accused & alive & ~bit(replica);
}

void strait_exclusion_note(struct strait_exclusion *x, const strait_exclusion_report *reports,
                           uint64_t members, uint64_t alive, int is_first) {
    if (is_first) memset(x->now, 0, sizeof x->now);
    if (is_first) x->late = 0;
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++) {
        if (!has(alive, r) || reports[r].is_complete) continue;
        const uint64_t accused = accused_by(reports, r, members, alive);
        x->late |= bit(r);
        for (int k = 0; k < STRAIT_RUN_REPLICAS; k++) {
            if (has(accused, k)) x->accusers[k] |= bit(r);
            if (has(accused, k)) x->now[k] |= bit(r);
            if (has(accused, k) && count(alive) == 2) x->is_disputed = 1;
            if (has(accused & reports[r].rejected, k)) x->rejectors[k] |= bit(r);
        }
    }
}

/* Which of two is left out: one accuses the other, nobody confirms it. */
static int choose_loser(struct strait_exclusion *x, const int *labels, int accuser, int accused,
                        int n_alive) {
    if (x->is_trusting) return accused;
    const int by = label_of(labels, accuser), of = label_of(labels, accused);
    const int is_turn = has(x->turns_before[of], by);
    x->opponents[by] |= bit(of);
    x->opponents[of] |= bit(by);
    if (n_alive == 2) return accused;
    const int n_by = count(x->opponents[by]), n_of = count(x->opponents[of]);
    if (n_of >= 2 && n_of > n_by) return accused;
    if (n_by >= 2 && n_by > n_of) return accuser;
    x->turns[of] = (x->turns[of] & ~bit(by)) | (is_turn ? 0 : bit(by));
    return is_turn ? accused : accuser;
}

uint64_t strait_exclusion_members(struct strait_exclusion *x, const int *labels, uint64_t alive,
                                  uint64_t eligible) {
    const int n_alive = count(alive);
    uint64_t out = 0;
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++)
        if (has(alive, r) && count(x->accusers[r] & alive) >= 2) out |= bit(r);
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++) {
        const uint64_t accusers = x->accusers[r] & alive & ~out;
        if (!has(alive & ~out, r) || accusers == 0) continue;
        const int accuser = lowest(accusers);
        const int later = accuser > r ? accuser : r;
        const int loser = choose_loser(x, labels, accuser, r, n_alive);
        /* Where two accuse each other, their link may be down both ways, and the later of them is
         * left out if nobody else can tell who is at fault. With others about, that would let the
         * earlier one have the later one left out of every average. */
        const int is_alone = x->is_trusting || n_alive == 2;
        out |= bit(is_alone && has(x->accusers[accuser], r) ? later : loser);
    }
    eligible &= alive;
    return (eligible & ~out) != 0 || eligible == 0 ? eligible & ~out : bit(lowest(eligible));
}

uint64_t strait_exclusion_gone(const struct strait_exclusion *x, uint64_t members, uint64_t alive,
                               int is_last) {
    const int n_enough = x->is_trusting ? 1 : 2;
    const int is_lasting = x->is_disputed && x->n_disputed + 1 >= STRAIT_EXCLUSION_DISPUTES;
    uint64_t gone = 0;
    if (count(alive) == 2 && !x->is_trusting)
        return is_last || is_lasting ? alive & ~bit(lowest(alive)) : 0;
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++) {
        if (!has(alive, r)) continue;
        if (count(x->rejectors[r] & alive) >= 2) gone |= bit(r);
        if (!has(members, r) && count(x->now[r] & alive) >= n_enough) gone |= bit(r);
    }
    if (is_last && gone == 0) gone = x->late & alive & ~members;
    if (is_last && gone == 0) gone = x->late & alive;
    if (gone != alive) return gone;
    return x->is_trusting ? 0 : gone & ~bit(lowest(alive));
}
