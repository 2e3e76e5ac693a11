#include "net/mpi/world.h"

#include <strait/version.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/program.h"
#include "base/text/text.h"
#include "net/mpi/endpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MEMBER_BYTES = 160, // of a member's description
    TEXT_TAG = 0,       // of texts; endpoints use tags from 2 on
    NAP_NS = 1000000    // between two looks for a text
};

/* Set once by strait_mpi_join, before other threads start. */
static struct {
    const strait_mpi_module *module; // NULL: not joined
    int rank, size;
    strait_mpi_member *members;
} world;

/* ---- the module ---- */

/* RTLD_GLOBAL, because the plugins of Open MPI expect its symbols there. */
static strait_err open_module(char path[STRAIT_PATH_MAX], const strait_mpi_module **out) {
    static const char *const places[] = {"strait-mpi.so", "../lib/strait/strait-mpi.so",
                                         "../bin/strait-mpi.so", "../../bin/strait-mpi.so"};
    char folder[STRAIT_PATH_MAX];
    strait_program_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        STRAIT_TRY(strait_file_path(path, "%s/%s", folder, places[i]));
        if (access(path, R_OK) != 0) continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) {
            const char *reason = dlerror(); // NOLINT(concurrency-mt-unsafe)
            return STRAIT_FAIL(STRAIT_ENOTSUP,
                               "%s cannot be opened: %s: install Open MPI, or compile the module "
                               "with this machine's MPI (docs/cluster.md)",
                               path, reason != NULL ? reason : "unknown error");
        }
        const strait_mpi_module *module = dlsym(library, STRAIT_MPI_SYMBOL);
        if (module == NULL || module->abi != STRAIT_MPI_ABI)
            return STRAIT_FAIL(STRAIT_ENOTSUP, "%s belongs to another release of strait", path);
        *out = module;
        return STRAIT_OK;
    }
    path[0] = '\0';
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "MPI support is not installed: strait-mpi.so is neither in %s nor in its "
                       "../lib/strait or ../bin: build strait where Open MPI's headers are "
                       "(docs/cluster.md)",
                       folder);
}

strait_err strait_mpi_find(char path[STRAIT_PATH_MAX], const char **name) {
    const strait_mpi_module *module = NULL;
    STRAIT_TRY(open_module(path, &module));
    *name = module->name();
    return STRAIT_OK;
}

/* ---- the members ---- */

/* The cores that this process may use, and whether that is fewer than there are. */
static void count_cores(strait_mpi_member *me) {
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    me->cores = online < 1 ? 1 : (int)online;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        me->cores = CPU_COUNT(&set);
    me->is_bound = me->cores < online;
}

static void describe_self(strait_mpi_member *me) {
    struct stat namespace = {0};
    *me = (strait_mpi_member){.pid = getpid()};
    if (gethostname(me->host, sizeof me->host - 1) != 0) (void)snprintf(me->host, 8, "unknown");
    if (stat("/proc/self/ns/pid", &namespace) == 0) me->pid_namespace = (int64_t) namespace.st_ino;
    count_cores(me);
}

static void pack_member(const strait_mpi_member *me, unsigned char out[MEMBER_BYTES]) {
    strait_writer w = {.at = out, .left = MEMBER_BYTES};
    memset(out, 0, MEMBER_BYTES);
    strait_writer_uint(&w, STRAIT_FRAME_VERSION, 1);
    strait_writer_text(&w, 1, STRAIT_VERSION);
    strait_writer_text(&w, 1, me->host);
    strait_writer_uint(&w, (uint64_t)me->pid, 8);
    strait_writer_uint(&w, (uint64_t)me->pid_namespace, 8);
    strait_writer_uint(&w, (uint64_t)me->cores, 4);
    strait_writer_uint(&w, (uint64_t)me->is_bound, 1);
}

/* Ranks of different releases could neither understand each other nor compute the same. */
static strait_err unpack_member(int rank, const unsigned char *in, strait_mpi_member *out) {
    strait_reader r = {.at = in, .left = MEMBER_BYTES};
    char version[32];
    const int frame = (int)strait_reader_uint(&r, 1);
    strait_reader_text(&r, 1, version, sizeof version);
    strait_reader_text(&r, 1, out->host, sizeof out->host);
    out->pid = (int64_t)strait_reader_uint(&r, 8);
    out->pid_namespace = (int64_t)strait_reader_uint(&r, 8);
    out->cores = (int)strait_reader_uint(&r, 4);
    out->is_bound = (int)strait_reader_uint(&r, 1);
    strait_text_tame(out->host);
    if (!r.is_short && frame == STRAIT_FRAME_VERSION && strcmp(version, STRAIT_VERSION) == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "rank %d on %s runs strait %s (protocol %d), rank %d runs %s (protocol %d): "
                       "install the same release on all machines",
                       rank, out->host, version, frame, world.rank, STRAIT_VERSION,
                       STRAIT_FRAME_VERSION);
}

/* Nodes are numbered in the order of their lowest rank. */
static void number_nodes(strait_mpi_member *members, int n) {
    int n_nodes = 0;
    for (int i = 0; i < n; i++) {
        members[i].node = -1;
        members[i].local = 0;
        for (int j = 0; j < i; j++) {
            if (strcmp(members[i].host, members[j].host) != 0) continue;
            members[i].node = members[j].node;
            members[i].local++;
        }
        if (members[i].node < 0) members[i].node = n_nodes++;
    }
}

static strait_err meet(void) {
    unsigned char mine[MEMBER_BYTES];
    unsigned char *all = NULL;
    strait_mpi_member me;
    describe_self(&me);
    pack_member(&me, mine);
    STRAIT_TRY(strait_alloc((size_t)world.size, MEMBER_BYTES, "ranks", (void **)&all));
    strait_err err = STRAIT_OK;
    if (!world.module->share(mine, sizeof mine, all))
        err = STRAIT_FAIL(STRAIT_ECLOSED, "MPI: the ranks could not exchange their names");
    for (int i = 0; i < world.size && err == STRAIT_OK; i++)
        err = unpack_member(i, all + (size_t)i * MEMBER_BYTES, &world.members[i]);
    if (err == STRAIT_OK) number_nodes(world.members, world.size);
    strait_alloc_free(all);
    return err;
}

strait_err strait_mpi_join(void) {
    char path[STRAIT_PATH_MAX];
    const strait_mpi_module *module = NULL;
    if (world.module != NULL) return STRAIT_OK;
    STRAIT_TRY(open_module(path, &module));
    if (!module->start())
        return STRAIT_FAIL(STRAIT_ENOTSUP, "MPI cannot be started; see its messages above");
    world.module = module;
    world.rank = module->rank();
    world.size = module->size();
    if (world.size > STRAIT_MPI_RANKS)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%d ranks, expected at most %d", world.size,
                           STRAIT_MPI_RANKS);
    STRAIT_TRY(
        strait_alloc((size_t)world.size, sizeof *world.members, "ranks", (void **)&world.members));
    return meet();
}

void strait_mpi_leave(void) {
    if (world.module == NULL) return;
    world.module->stop();
    world.module = NULL;
    strait_mpi_endpoint_free_rest();
    strait_alloc_free(world.members);
    world.members = NULL;
}

void strait_mpi_abort(int code) {
    if (world.module != NULL) world.module->abort(code);
}

const strait_mpi_module *strait_mpi_world(void) {
    return world.module;
}

const char *strait_mpi_name(void) {
    return world.module != NULL ? world.module->name() : "";
}

int strait_mpi_rank(void) {
    return world.rank;
}

int strait_mpi_size(void) {
    return world.module != NULL ? world.size : 1;
}

const strait_mpi_member *strait_mpi_member_of(int rank) {
    return &world.members[rank];
}

/* A process that ended but whose launcher has not collected it yet still has its pid; launchers do
 * so within milliseconds. */
strait_err strait_mpi_check(int rank) {
    const strait_mpi_member *me = &world.members[world.rank];
    const strait_mpi_member *other = &world.members[rank];
    if (other->node != me->node || other->pid_namespace != me->pid_namespace) return STRAIT_OK;
    if (kill((pid_t)other->pid, 0) == 0 || errno != ESRCH) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECLOSED, "rank %d on %s (process %lld) has ended", rank, other->host,
                       (long long)other->pid);
}

/* ---- texts ---- */

static void nap(void) {
    const struct timespec time = {.tv_nsec = NAP_NS};
    (void)nanosleep(&time, NULL);
}

/* Who is waited for, and until when. */
struct wait {
    int rank, timeout_ms;
    strait_err (*check)(void *user);
    void *user;
};

/* Waits for a request without keeping a core busy: ranks may share cores. */
static strait_err wait_for(strait_mpi_request *request, const struct wait *w, size_t *bytes) {
    const int64_t until = w->timeout_ms < 0 ? INT64_MAX
                                            : strait_clock_ns() + (int64_t)w->timeout_ms * 1000000;
    for (;;) {
        const int state = world.module->test(request, NULL, bytes);
        if (state == 1) return STRAIT_OK;
        if (state < 0)
            return STRAIT_FAIL(STRAIT_ECLOSED, "MPI: the exchange with rank %d failed", w->rank);
        STRAIT_TRY(strait_mpi_check(w->rank));
        if (w->check != NULL) STRAIT_TRY(w->check(w->user));
        if (strait_clock_ns() > until)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "rank %d on %s did not answer within %d ms",
                               w->rank, world.members[w->rank].host, w->timeout_ms);
        nap();
    }
}

strait_err strait_mpi_send_text(int rank, const char *text) {
    strait_mpi_request requests[2];
    if (!world.module->send(rank, TEXT_TAG, text, strlen(text) + 1, NULL, 0, requests))
        return STRAIT_FAIL(STRAIT_ECLOSED, "MPI: cannot send to rank %d", rank);
    return wait_for(&requests[0], &(struct wait){.rank = rank, .timeout_ms = -1}, NULL);
}

strait_err strait_mpi_receive_text(int rank, int timeout_ms, strait_err (*check)(void *user),
                                   void *user, char **out) {
    const struct wait w = {rank, timeout_ms, check, user};
    strait_mpi_request request;
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_alloc(STRAIT_MPI_TEXT, 1, "text of a rank", (void **)&text));
    strait_err err = STRAIT_OK;
    if (!world.module->receive(rank, TEXT_TAG, text, STRAIT_MPI_TEXT, &request)) {
        strait_alloc_free(text);
        return STRAIT_FAIL(STRAIT_ECLOSED, "MPI: cannot receive from rank %d", rank);
    }
    err = wait_for(&request, &w, &bytes);
    if (err == STRAIT_OK && (bytes == 0 || text[bytes - 1] != '\0'))
        err = STRAIT_FAIL(STRAIT_EPROTO, "rank %d sent a malformed text", rank);
    if (err == STRAIT_OK) {
        *out = text;
        return STRAIT_OK;
    }
    world.module->cancel(&request); // MPI would write into memory that is freed
    strait_alloc_free(text);
    return err;
}
