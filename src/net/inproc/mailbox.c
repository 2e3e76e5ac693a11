#include "net/inproc/mailbox.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    LETTERS_OF_BOX = 16
}; // as many as a quiet link has on the way, so that none is made later

struct strait_mailbox { // guarded by hub->mutex
    struct strait_mailbox *next;
    struct strait_inproc_network *hub;
    char name[STRAIT_NAME_MAX];
    struct strait_mail *first; // in the order they are due
    struct strait_mail *last;  // where most of them go
    int is_awake;
    pthread_cond_t arrived;
};

struct strait_inproc_network {
    pthread_mutex_t mutex;
    struct strait_mailbox *boxes; // guarded by mutex
    struct strait_mail *spare;    // guarded by mutex
};

strait_err strait_inproc_network_open(struct strait_inproc_network **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_inproc_network), "inproc hub", &memory));
    struct strait_inproc_network *hub = memory;
    pthread_mutex_init(&hub->mutex, NULL);
    *out = hub;
    return STRAIT_OK;
}

static void free_letters(struct strait_mail **first) {
    while (*first != NULL) {
        struct strait_mail *letter = *first;
        *first = letter->next;
        strait_msg_close(&letter->msg);
        strait_alloc_free(letter);
    }
}

void strait_inproc_network_close(struct strait_inproc_network **hub) {
    if (*hub == NULL) return;
    free_letters(&(*hub)->spare);
    pthread_mutex_destroy(&(*hub)->mutex);
    strait_alloc_free(*hub);
    *hub = NULL;
}

static strait_err add_spare_letters(struct strait_inproc_network *hub, int n) {
    for (int i = 0; i < n; i++) {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mail), "inproc letter", &memory));
        struct strait_mail *letter = memory;
        pthread_mutex_lock(&hub->mutex);
        letter->next = hub->spare;
        hub->spare = letter;
        pthread_mutex_unlock(&hub->mutex);
    }
    return STRAIT_OK;
}

strait_err strait_mailbox_open(struct strait_inproc_network *hub, struct strait_mailbox **out) {
    STRAIT_TRY(add_spare_letters(hub, LETTERS_OF_BOX));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mailbox), "inproc box", &memory));
    struct strait_mailbox *box = memory;
    box->hub = hub;
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&box->arrived, &how);
    pthread_condattr_destroy(&how);
    pthread_mutex_lock(&hub->mutex);
    box->next = hub->boxes;
    hub->boxes = box;
    pthread_mutex_unlock(&hub->mutex);
    *out = box;
    return STRAIT_OK;
}

void strait_mailbox_close(struct strait_mailbox **box) {
    struct strait_mailbox *b = *box;
    if (b == NULL) return;
    pthread_mutex_lock(&b->hub->mutex);
    struct strait_mailbox **at = &b->hub->boxes;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    pthread_mutex_unlock(&b->hub->mutex);
    free_letters(&b->first);
    pthread_cond_destroy(&b->arrived);
    strait_alloc_free(b);
    *box = NULL;
}

/* Call with the hub locked. */
static struct strait_mailbox *find(const struct strait_inproc_network *hub, const char *name) {
    struct strait_mailbox *box = hub->boxes;
    while (box != NULL && strcmp(box->name, name) != 0)
        box = box->next;
    return box;
}

strait_err strait_mailbox_name(struct strait_mailbox *box, const char *name) {
    const size_t bytes = strlen(name) + 1;
    if (bytes == 1 || bytes > sizeof box->name)
        return STRAIT_FAIL(STRAIT_EINVAL, "inproc name '%.80s': expected 1 to %zu characters", name,
                           sizeof box->name - 1);
    pthread_mutex_lock(&box->hub->mutex);
    const int is_taken = find(box->hub, name) != NULL;
    if (!is_taken) memcpy(box->name, name, bytes);
    pthread_mutex_unlock(&box->hub->mutex);
    if (is_taken) return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at %s: the name is taken", name);
    return STRAIT_OK;
}

strait_err strait_mailbox_find(struct strait_inproc_network *hub, const char *name,
                               struct strait_mailbox **out) {
    pthread_mutex_lock(&hub->mutex);
    struct strait_mailbox *box = name[0] != 0 ? find(hub, name) : NULL;
    pthread_mutex_unlock(&hub->mutex);
    if (box == NULL) return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: nobody is at %s", name);
    *out = box;
    return STRAIT_OK;
}

/* Call with the hub locked. */
static int box_exists(const struct strait_inproc_network *hub, const struct strait_mailbox *box) {
    for (const struct strait_mailbox *b = hub->boxes; b != NULL; b = b->next)
        if (b == box) return 1;
    return 0;
}

/* Call with the hub locked. */
static strait_err insert(struct strait_inproc_network *hub, struct strait_mailbox *to,
                         const struct strait_mail *content) {
    if (!box_exists(hub, to)) return STRAIT_FAIL(STRAIT_ECLOSED, "inproc peer has gone");
    struct strait_mail *letter = hub->spare;
    if (letter != NULL) {
        hub->spare = letter->next;
    } else {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof *letter, "inproc letter", &memory));
        letter = memory;
    }
    *letter = *content;
    const int is_late = to->last != NULL && to->last->due_ns <= letter->due_ns;
    struct strait_mail **at = is_late ? &to->last->next : &to->first;
    while (*at != NULL && (*at)->due_ns <= letter->due_ns)
        at = &(*at)->next;
    letter->next = *at;
    *at = letter;
    if (letter->next == NULL) to->last = letter;
    pthread_cond_signal(&to->arrived);
    return STRAIT_OK;
}

strait_err strait_mailbox_post(struct strait_inproc_network *hub, struct strait_mailbox *to,
                               struct strait_mail *letter) {
    if (letter->due_ns == INT64_MAX) {
        strait_msg_close(&letter->msg);
        return STRAIT_OK;
    }
    pthread_mutex_lock(&hub->mutex);
    const strait_err err = insert(hub, to, letter);
    pthread_mutex_unlock(&hub->mutex);
    if (err == STRAIT_OK) letter->msg = NULL;
    return err;
}

/* Call with the hub locked. */
static void wait_for_letter(struct strait_mailbox *box, int64_t until_ns) {
    while (!box->is_awake) {
        int64_t wait_ns = until_ns;
        if (box->first != NULL && box->first->due_ns < wait_ns) wait_ns = box->first->due_ns;
        if (wait_ns <= strait_clock_ns()) return;
        if (wait_ns == INT64_MAX) {
            pthread_cond_wait(&box->arrived, &box->hub->mutex);
            continue;
        }
        const struct timespec until = {.tv_sec = wait_ns / 1000000000,
                                       .tv_nsec = wait_ns % 1000000000};
        pthread_cond_timedwait(&box->arrived, &box->hub->mutex, &until);
    }
}

int strait_mailbox_take(struct strait_mailbox *box, int64_t until_ns, struct strait_mail *out) {
    struct strait_inproc_network *hub = box->hub;
    pthread_mutex_lock(&hub->mutex);
    wait_for_letter(box, until_ns);
    box->is_awake = 0;
    struct strait_mail *letter = box->first;
    const int has_one = letter != NULL && letter->due_ns <= strait_clock_ns();
    if (has_one) {
        *out = *letter;
        box->first = letter->next;
        if (box->first == NULL) box->last = NULL;
        letter->msg = NULL;
        letter->next = hub->spare;
        hub->spare = letter;
    }
    pthread_mutex_unlock(&hub->mutex);
    return has_one;
}

void strait_mailbox_wake(struct strait_mailbox *box) {
    pthread_mutex_lock(&box->hub->mutex);
    box->is_awake = 1;
    pthread_cond_signal(&box->arrived);
    pthread_mutex_unlock(&box->hub->mutex);
}
