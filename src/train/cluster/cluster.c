#include "train/cluster/cluster.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/file.h"
#include "net/mpi/world.h"
#include "plan/place.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MS = 60000, // for a rank to read its run file and to listen
    RUN_MAX = STRAIT_MPI_TEXT / 2
};

/* MPI belongs to the whole process, and so does the question whether it can still end in order. */
static atomic_int is_lost;

strait_err strait_cluster_join(int *rank) {
    STRAIT_TRY(strait_mpi_join());
    *rank = strait_mpi_rank();
    return STRAIT_OK;
}

int strait_cluster_size(void) {
    return strait_mpi_size();
}

int strait_cluster_is_joined(void) {
    return strait_mpi_world() != NULL && strait_mpi_size() > 1;
}

void strait_cluster_set_lost(void) {
    is_lost = 1;
}

/* The other ranks wait for a stage or for the end, so each is told; then MPI ends in all. */
void strait_cluster_leave(int code) {
    if (strait_mpi_world() == NULL) return;
    const int is_first = strait_mpi_rank() == 0;
    if (is_lost || (code != 0 && !is_first)) strait_mpi_abort(code);
    for (int i = 1; is_first && i < strait_mpi_size(); i++)
        if (strait_mpi_send_text(i, "end") != STRAIT_OK) strait_mpi_abort(code != 0 ? code : 1);
    strait_mpi_leave();
}

const char *strait_cluster_rank_text(int rank) {
    static _Thread_local char text[STRAIT_MPI_HOST + 32];
    (void)snprintf(text, sizeof text, "rank %d on %s", rank, strait_mpi_member_of(rank)->host);
    return text;
}

/* ---- placement ---- */

strait_err strait_cluster_check(int n_members) {
    const int n_ranks = strait_mpi_size();
    if (n_ranks <= n_members) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_ECONFIG,
        "%d ranks for %d stage%s: start at most %d, or set stages.count (at most one "
        "stage per layer) or stages.replicas so that each rank has something to do",
        n_ranks, n_members, n_members == 1 ? "" : "s", n_members);
}

strait_err strait_cluster_place(const strait_run *run, int n_members, int *ranks) {
    const int n_ranks = strait_mpi_size();
    strait_place_rank *places = NULL;
    STRAIT_TRY(strait_cluster_check(n_members));
    STRAIT_TRY(strait_alloc((size_t)n_ranks, sizeof *places, "ranks", (void **)&places));
    for (int i = 0; i < n_ranks; i++) {
        const strait_mpi_member *member = strait_mpi_member_of(i);
        places[i] = (strait_place_rank){.node = member->node, .local = member->local};
    }
    strait_place(run->stages.place, places, n_ranks, n_members, ranks);
    strait_alloc_free(places);
    return STRAIT_OK;
}

/* How many stages this rank computes, or, unless of_rank, all ranks of this node together. */
static strait_err count_stages(const strait_run *run, int n_members, int of_rank, int *out) {
    int ranks[STRAIT_RUN_MEMBERS];
    const int own = strait_mpi_rank();
    const strait_mpi_member *me = strait_mpi_member_of(own);
    *out = 0;
    STRAIT_TRY(strait_cluster_place(run, n_members, ranks));
    for (int i = 0; i < n_members; i++) {
        const strait_mpi_member *other = strait_mpi_member_of(ranks[i]);
        *out += ranks[i] == own || (!of_rank && other->node == me->node);
    }
    return STRAIT_OK;
}

double strait_cluster_share(const strait_run *run, int n_members, int of_rank) {
    int n = n_members;
    if (strait_cluster_is_joined() && count_stages(run, n_members, of_rank, &n) != STRAIT_OK)
        n = n_members;
    return (double)n / (double)n_members;
}

/* Launchers often show each rank its own GPU alone, which is then number 0. A choice of the user's,
 * another number or a list, stays. */
static strait_option_ints choose_device(const strait_run *run) {
    const strait_option_ints *chosen = &run->device.ordinal;
    const int n = strait_backend_count(run->device.kind);
    if (strcmp(run->device.kind, "cuda") != 0 || chosen->n > 1 ||
        (chosen->n == 1 && chosen->items[0] != 0))
        return *chosen;
    const int local = strait_mpi_member_of(strait_mpi_rank())->local;
    return (strait_option_ints){.items = {n > 0 ? local % n : 0}, .n = 1};
}

strait_err strait_cluster_write_run(const strait_run *run, int n_members, const char *path) {
    void *memory = NULL;
    int n_neighbours = 1;
    const strait_mpi_member *me = strait_mpi_member_of(strait_mpi_rank());
    /* A rank that the launcher has bound to some cores has them alone. */
    STRAIT_TRY(count_stages(run, n_members, me->is_bound, &n_neighbours));
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &memory));
    strait_run *own = memory;
    *own = *run;
    const int64_t share = me->cores / (n_neighbours < 1 ? 1 : n_neighbours);
    if (own->device.threads == 0) own->device.threads = share < 1 ? 1 : share;
    own->device.ordinal = choose_device(run);
    const strait_err err = strait_run_save(own, path);
    strait_alloc_free(own);
    return err;
}

static int count_nodes(void) {
    int n = 0;
    for (int i = 0; i < strait_mpi_size(); i++)
        if (strait_mpi_member_of(i)->node >= n) n = strait_mpi_member_of(i)->node + 1;
    return n;
}

/* Stages that share a rank are on one line. */
strait_err strait_cluster_describe(const struct strait_run *run, const char **out) {
    static char text[STRAIT_RUN_MEMBERS * (STRAIT_MPI_HOST + 96) + STRAIT_MPI_NAME];
    int ranks[STRAIT_RUN_MEMBERS];
    char first[48], last[48], of[32] = "";
    const int n = strait_run_members(run);
    const int n_nodes = count_nodes();
    STRAIT_TRY(strait_cluster_place(run, n, ranks));
    if (n > run->stages.count) (void)snprintf(of, sizeof of, "%d replicas of ", n);
    int at = snprintf(text, sizeof text, "%s%d stage%s on %d ranks of %d node%s, joined by %.120s",
                      of, (int)run->stages.count, run->stages.count == 1 ? "" : "s",
                      strait_mpi_size(), n_nodes, n_nodes == 1 ? "" : "s", strait_mpi_name());
    for (int i = 0, end = 0; i < n; i = end) {
        for (end = i + 1; end < n && ranks[end] == ranks[i];)
            end++;
        strait_run_member_name(run, i, first, sizeof first);
        strait_run_member_name(run, end - 1, last, sizeof last);
        at += snprintf(text + at, sizeof text - (size_t)at, "\n%s%s%s: %s", first,
                       end > i + 1 ? " to " : "", end > i + 1 ? last : "",
                       strait_cluster_rank_text(ranks[i]));
    }
    *out = text;
    return STRAIT_OK;
}

/* ---- starting a stage on another rank ---- */

strait_err strait_cluster_start(int rank, const char *startup_line, const char *run_path,
                                char **out_answer) {
    char *run = NULL, *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_read(run_path, RUN_MAX, &run, &bytes));
    strait_err err = strait_alloc(STRAIT_MPI_TEXT, 1, "startup of a stage", (void **)&text);
    if (err == STRAIT_OK) {
        (void)snprintf(text, STRAIT_MPI_TEXT, "stage %s%.*s", startup_line, (int)bytes, run);
        err = strait_mpi_send_text(rank, text);
    }
    strait_alloc_free(run);
    strait_alloc_free(text);
    STRAIT_TRY(err);
    return strait_mpi_receive_text(rank, ANSWER_MS, NULL, NULL, out_answer);
}

strait_err strait_cluster_go(int rank, int stage, int replica) {
    char text[32];
    (void)snprintf(text, sizeof text, "go %d %d", stage, replica);
    return strait_mpi_send_text(rank, text);
}
