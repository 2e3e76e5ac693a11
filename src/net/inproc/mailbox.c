/* mailbox.c - see mailbox.h. One mutex per network guards all mailboxes: mails are moved, not their
 * messages copied, so it is held only for moments. */
#include "net/inproc/mailbox.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    SPARE_MAILS = 16 // allocated per mailbox: as many as an idle link has in flight
};

struct strait_mailbox { // guarded by network->mutex
    struct strait_mailbox *next;
    struct strait_inproc_network *network;
    uint64_t number;
    char name[STRAIT_NAME_MAX];
    struct strait_mail *first; // sorted by due time
    struct strait_mail *last;  // most mails are appended
    int is_woken;
    pthread_cond_t arrived;
};

struct strait_inproc_network {
    pthread_mutex_t mutex;
    struct strait_mailbox *mailboxes; // guarded by mutex
    struct strait_mail *spare;        // guarded by mutex
    uint64_t n_opened;                // guarded by mutex; the number of the latest mailbox
};

strait_err strait_inproc_network_open(struct strait_inproc_network **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_inproc_network), "inproc network", &memory));
    struct strait_inproc_network *network = memory;
    pthread_mutex_init(&network->mutex, NULL);
    *out = network;
    return STRAIT_OK;
}

static void free_mails(struct strait_mail **first) {
    while (*first != NULL) {
        struct strait_mail *mail = *first;
        *first = mail->next;
        strait_msg_close(&mail->msg);
        strait_alloc_free(mail);
    }
}

void strait_inproc_network_close(struct strait_inproc_network **network) {
    if (*network == NULL) return;
    free_mails(&(*network)->spare);
    pthread_mutex_destroy(&(*network)->mutex);
    strait_alloc_free(*network);
    *network = NULL;
}

/* Allocated ahead, so that the first messages of a measured step allocate nothing. */
static strait_err add_spare_mails(struct strait_inproc_network *network, int n) {
    for (int i = 0; i < n; i++) {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mail), "inproc mail", &memory));
        struct strait_mail *mail = memory;
        pthread_mutex_lock(&network->mutex);
        mail->next = network->spare;
        network->spare = mail;
        pthread_mutex_unlock(&network->mutex);
    }
    return STRAIT_OK;
}

strait_err strait_mailbox_open(struct strait_inproc_network *network, struct strait_mailbox **out) {
    STRAIT_TRY(add_spare_mails(network, SPARE_MAILS));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mailbox), "inproc mailbox", &memory));
    struct strait_mailbox *mailbox = memory;
    mailbox->network = network;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&mailbox->arrived, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_lock(&network->mutex);
    mailbox->number = ++network->n_opened;
    mailbox->next = network->mailboxes;
    network->mailboxes = mailbox;
    pthread_mutex_unlock(&network->mutex);
    *out = mailbox;
    return STRAIT_OK;
}

uint64_t strait_mailbox_number(const struct strait_mailbox *mailbox) {
    return mailbox->number;
}

void strait_mailbox_close(struct strait_mailbox **mailbox) {
    struct strait_mailbox *b = *mailbox;
    if (b == NULL) return;
    pthread_mutex_lock(&b->network->mutex);
    struct strait_mailbox **at = &b->network->mailboxes;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    pthread_mutex_unlock(&b->network->mutex);
    free_mails(&b->first);
    pthread_cond_destroy(&b->arrived);
    strait_alloc_free(b);
    *mailbox = NULL;
}

/* Call with the network locked. */
static struct strait_mailbox *find(const struct strait_inproc_network *network, const char *name) {
    struct strait_mailbox *mailbox = network->mailboxes;
    while (mailbox != NULL && strcmp(mailbox->name, name) != 0)
        mailbox = mailbox->next;
    return mailbox;
}

strait_err strait_mailbox_bind(struct strait_mailbox *mailbox, const char *name) {
    const size_t bytes = strlen(name) + 1;
    if (bytes == 1 || bytes > sizeof mailbox->name)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot listen at '%.80s': an inproc name has 1 to %zu characters", name,
                           sizeof mailbox->name - 1);
    pthread_mutex_lock(&mailbox->network->mutex);
    const int is_taken = find(mailbox->network, name) != NULL;
    if (!is_taken) memcpy(mailbox->name, name, bytes);
    pthread_mutex_unlock(&mailbox->network->mutex);
    if (is_taken)
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at %s: another transport listens there",
                           name);
    return STRAIT_OK;
}

strait_err strait_mailbox_find(struct strait_mailbox *mailbox, const char *name, uint64_t *out) {
    struct strait_inproc_network *network = mailbox->network;
    pthread_mutex_lock(&network->mutex);
    const struct strait_mailbox *found = name[0] != 0 ? find(network, name) : NULL;
    const uint64_t number = found != NULL ? found->number : 0;
    pthread_mutex_unlock(&network->mutex);
    if (number == 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: no transport listens at %s", name);
    *out = number;
    return STRAIT_OK;
}

/* Call with the network locked. */
static strait_err insert(struct strait_inproc_network *network, uint64_t number,
                         const struct strait_mail *content) {
    /* Looked up under the mutex: the peer's thread may have freed its mailbox. */
    struct strait_mailbox *to = network->mailboxes;
    while (to != NULL && to->number != number)
        to = to->next;
    if (to == NULL) return STRAIT_FAIL(STRAIT_ECLOSED, "the inproc peer has closed");
    struct strait_mail *mail = network->spare;
    if (mail != NULL) {
        network->spare = mail->next;
    } else {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof *mail, "inproc mail", &memory));
        mail = memory;
    }
    *mail = *content;
    /* Mails of one link are due in order; only those of faster links have to be sorted in. */
    const int is_latest = to->last != NULL && to->last->due_ns <= mail->due_ns;
    struct strait_mail **at = is_latest ? &to->last->next : &to->first;
    while (*at != NULL && (*at)->due_ns <= mail->due_ns)
        at = &(*at)->next;
    mail->next = *at;
    *at = mail;
    if (mail->next == NULL) to->last = mail;
    pthread_cond_signal(&to->arrived);
    return STRAIT_OK;
}

strait_err strait_mailbox_send(struct strait_mailbox *mailbox, uint64_t to,
                               struct strait_mail *mail) {
    struct strait_inproc_network *network = mailbox->network;
    if (mail->due_ns == INT64_MAX) { // dropped by the emulated link
        strait_msg_close(&mail->msg);
        return STRAIT_OK;
    }
    pthread_mutex_lock(&network->mutex);
    const strait_err err = insert(network, to, mail);
    pthread_mutex_unlock(&network->mutex);
    if (err == STRAIT_OK) mail->msg = NULL;
    return err;
}

/* Waits until a mail is due, the deadline passes or another thread wakes us. Call with the network
 * locked. */
static void wait_for_mail(struct strait_mailbox *mailbox, int64_t until_ns) {
    while (!mailbox->is_woken) {
        /* An earlier mail may have arrived meanwhile: compute the deadline anew. */
        int64_t wait_ns = until_ns;
        if (mailbox->first != NULL && mailbox->first->due_ns < wait_ns)
            wait_ns = mailbox->first->due_ns;
        if (wait_ns <= strait_clock_ns()) return;
        if (wait_ns == INT64_MAX) {
            pthread_cond_wait(&mailbox->arrived, &mailbox->network->mutex);
            continue;
        }
        const struct timespec until = {.tv_sec = wait_ns / 1000000000,
                                       .tv_nsec = wait_ns % 1000000000};
        pthread_cond_timedwait(&mailbox->arrived, &mailbox->network->mutex, &until);
    }
}

int strait_mailbox_receive(struct strait_mailbox *mailbox, int64_t until_ns,
                           struct strait_mail *out) {
    struct strait_inproc_network *network = mailbox->network;
    pthread_mutex_lock(&network->mutex);
    wait_for_mail(mailbox, until_ns);
    mailbox->is_woken = 0;
    struct strait_mail *mail = mailbox->first;
    const int has_mail = mail != NULL && mail->due_ns <= strait_clock_ns();
    if (has_mail) {
        *out = *mail;
        mailbox->first = mail->next;
        if (mailbox->first == NULL) mailbox->last = NULL;
        mail->msg = NULL;
        mail->next = network->spare;
        network->spare = mail;
    }
    pthread_mutex_unlock(&network->mutex);
    return has_mail;
}

/* The flag outlasts the signal, so that a wake between two waits is not lost. */
void strait_mailbox_wake(struct strait_mailbox *mailbox) {
    pthread_mutex_lock(&mailbox->network->mutex);
    mailbox->is_woken = 1;
    pthread_cond_signal(&mailbox->arrived);
    pthread_mutex_unlock(&mailbox->network->mutex);
}
