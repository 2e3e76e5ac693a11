/* mpi.c - the transport between the ranks of a job: links made of mails, moved by MPI.
 *
 * The launcher has started all ranks as one user, and MPI decides who reaches whom, so nothing is
 * encrypted. Peers exchange keys and run ids all the same, as over every transport.
 *
 * A mailbox has a number, its rank and a port, and the address rank-R:PORT. A process may have
 * several, for example that of the coordinator and that of a stage. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/mpi/box.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SPARE = 16,           // mails allocated ahead in each direction
    NAP_MIN_NS = 50000,   // between two polls, while messages arrive
    NAP_BUSY_NS = 100000, // at most, while a message is under way: large ones take several polls
    NAP_MAX_NS = 2000000, // after a long silence
    NAP_SHARE = 16,       // a nap is this part of the silence: polls cost the stage its core
    FLUSH_NAP_NS = 200000 // while a mailbox closes
};

/* The mailboxes of this process, so that an address that is taken or not there is noticed. */
static struct {
    pthread_mutex_t mutex;
    struct strait_mpi_box *first; // guarded by mutex
    uint32_t n_opened;            // guarded by mutex; ports are never used again
} boxes = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t number_of(void *mailbox) {
    const struct strait_mpi_box *box = mailbox;
    return (uint64_t)strait_mpi_rank() << 32 | box->port;
}

static void add_box(struct strait_mpi_box *box) {
    pthread_mutex_lock(&boxes.mutex);
    box->port = ++boxes.n_opened;
    box->next_box = boxes.first;
    boxes.first = box;
    pthread_mutex_unlock(&boxes.mutex);
}

static void remove_box(const struct strait_mpi_box *box) {
    pthread_mutex_lock(&boxes.mutex);
    for (struct strait_mpi_box **at = &boxes.first; *at != NULL; at = &(*at)->next_box) {
        if (*at != box) continue;
        *at = box->next_box;
        break;
    }
    pthread_mutex_unlock(&boxes.mutex);
}

static int listens(uint64_t port) {
    int is_found = 0;
    pthread_mutex_lock(&boxes.mutex);
    for (const struct strait_mpi_box *box = boxes.first; box != NULL; box = box->next_box)
        is_found |= box->port == port && box->is_bound;
    pthread_mutex_unlock(&boxes.mutex);
    return is_found;
}

static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static strait_err open_box(const strait_transport_config *config, void **out) {
    struct strait_mpi_box *box = NULL;
    if (strait_mpi_world() == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the mpi transport needs a job: see strait_mpi_join");
    STRAIT_TRY(strait_alloc(1, sizeof *box, "MPI mailbox", (void **)&box));
    box->mpi = strait_mpi_world();
    box->config = *config;
    box->active_ns = strait_clock_ns();
    pthread_mutex_init(&box->mutex, NULL);
    init_condition(&box->wakes);
    add_box(box);
    *out = box; // closed also after an error
    return strait_mpi_box_reserve(box, SPARE);
}

/* ---- waiting ---- */

/* Sleeps until a wake or `until_ns`, at most for a part of the silence so far. */
static void wait_a_little(struct strait_mpi_box *box, int64_t until_ns) {
    const int64_t now = strait_clock_ns();
    int64_t nap = (now - box->active_ns) / NAP_SHARE;
    if (nap < NAP_MIN_NS) nap = NAP_MIN_NS;
    const int64_t most = strait_mpi_box_is_busy(box) ? NAP_BUSY_NS : NAP_MAX_NS;
    if (nap > most) nap = most;
    const int64_t due = strait_mpi_box_next_due(box);
    int64_t end = now + nap;
    if (due < end) end = due;
    if (until_ns < end) end = until_ns;
    if (end <= now) return;
    const struct timespec time = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    pthread_mutex_lock(&box->mutex);
    if (!box->is_woken) (void)pthread_cond_timedwait(&box->wakes, &box->mutex, &time);
    pthread_mutex_unlock(&box->mutex);
}

static int was_woken(struct strait_mpi_box *box) {
    pthread_mutex_lock(&box->mutex);
    const int is_woken = box->is_woken;
    box->is_woken = 0;
    pthread_mutex_unlock(&box->mutex);
    return is_woken;
}

static int receive_mail(void *mailbox, int64_t until_ns, struct strait_mail *out) {
    struct strait_mpi_box *box = mailbox;
    for (;;) {
        if (strait_mpi_box_poll(box)) box->active_ns = strait_clock_ns();
        if (strait_mpi_box_take(box, out)) return 1;
        if (was_woken(box) || strait_clock_ns() >= until_ns) return 0;
        wait_a_little(box, until_ns);
    }
}

static void wake_box(void *mailbox) {
    struct strait_mpi_box *box = mailbox;
    pthread_mutex_lock(&box->mutex);
    box->is_woken = 1; // outlasts the signal, so that a wake between two waits is not lost
    pthread_cond_signal(&box->wakes);
    pthread_mutex_unlock(&box->mutex);
}

/* Sends the rest first, for at most the linger time: a peer that has gone takes nothing. */
static void close_box(void **mailbox) {
    struct strait_mpi_box *box = *mailbox;
    const struct timespec nap = {.tv_nsec = FLUSH_NAP_NS};
    const int64_t until = strait_clock_ns() + (int64_t)box->config.linger_ms * 1000000;
    while (strait_mpi_box_is_sending(box) && strait_clock_ns() < until)
        if (!strait_mpi_box_poll(box)) (void)nanosleep(&nap, NULL);
    remove_box(box);
    strait_mpi_box_fini(box);
    pthread_cond_destroy(&box->wakes);
    pthread_mutex_destroy(&box->mutex);
    strait_alloc_free(box);
    *mailbox = NULL;
}

/* ---- addresses ---- */

/* rank-R:PORT; returns 0 when it is something else. */
static int parse_address(const char *address, uint64_t *rank, uint64_t *port) {
    static const char start[] = "rank-";
    char *end = NULL;
    if (strncmp(address, start, sizeof start - 1) != 0) return 0;
    const char *digits = address + sizeof start - 1;
    *rank = strtoul(digits, &end, 10);
    if (end == digits || *end != ':') return 0;
    digits = end + 1;
    *port = strtoul(digits, &end, 10);
    return end != digits && *end == '\0' && *rank < STRAIT_MPI_RANKS && *port <= INT32_MAX / 2;
}

/* Every mailbox has a port of its own already; "rank-R:0" and an empty address ask for it. */
static strait_err bind_box(void *mailbox, const char *address, char out[STRAIT_ADDRESS_MAX]) {
    struct strait_mpi_box *box = mailbox;
    uint64_t rank = (uint64_t)strait_mpi_rank(), port = 0;
    if (address[0] != '\0' && !parse_address(address, &rank, &port))
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at '%.80s': expected rank-%d:0", address,
                           strait_mpi_rank());
    if (rank != (uint64_t)strait_mpi_rank() || (port != 0 && port != box->port))
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at %.80s: it is taken, or of another rank",
                           address);
    pthread_mutex_lock(&boxes.mutex);
    box->is_bound = 1;
    pthread_mutex_unlock(&boxes.mutex);
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "rank-%d:%u", strait_mpi_rank(), box->port);
    return STRAIT_OK;
}

/* Only ports of this rank can be looked up; others answer, or do not. */
static strait_err find_box(void *mailbox, const char *address, uint64_t *out) {
    (void)mailbox;
    uint64_t rank = 0, port = 0;
    if (!parse_address(address, &rank, &port) || rank >= (uint64_t)strait_mpi_size())
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "cannot connect: '%.80s' is not rank-R:PORT of one of %d ranks", address,
                           strait_mpi_size());
    if (rank == (uint64_t)strait_mpi_rank() && !listens(port))
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: no transport listens at %s", address);
    *out = rank << 32 | port;
    return STRAIT_OK;
}

/* ---- the table ---- */

static strait_err send_mail(void *mailbox, uint64_t to, struct strait_mail *mail) {
    struct strait_mpi_box *box = mailbox;
    if (box->broken != STRAIT_OK) return STRAIT_FAIL(box->broken, "%s", box->reason);
    return strait_mpi_box_send(box, to, mail);
}

static strait_err check_box(void *mailbox, uint64_t number) {
    const struct strait_mpi_box *box = mailbox;
    if (box->broken != STRAIT_OK) return STRAIT_FAIL(box->broken, "%s", box->reason);
    return strait_mpi_check((int)(number >> 32));
}

static const struct strait_post_ops post = {
    .scheme = "mpi",
    .open = open_box,
    .close = close_box,
    .number = number_of,
    .bind = bind_box,
    .find = find_box,
    .send = send_mail,
    .receive = receive_mail,
    .wake = wake_box,
    .check = check_box,
};

static strait_err init(struct strait_transport *t) {
    return strait_mail_init(t, &post);
}

const struct strait_transport_ops strait_transport_mpi = {
    .scheme = "mpi", .init = init, STRAIT_MAIL_TRANSPORT};
