#include "stage/inbox.h"

#include "base/alloc.h"
#include "plan/schedule.h"

#include <assert.h>

strait_err strait_inbox_init(struct strait_inbox *inbox, int n_microbatches, int64_t n_valid_max) {
    const size_t n = (size_t)n_microbatches;
    *inbox = (struct strait_inbox){.n_microbatches = n_microbatches, .n_valid_max = n_valid_max};
    for (int i = 0; i < STRAIT_INBOX_STEPS; i++) {
        STRAIT_TRY(
            strait_alloc(n, sizeof **inbox->messages, "inbox", (void **)&inbox->messages[i]));
        STRAIT_TRY(strait_alloc(n, 1, "arrivals", (void **)&inbox->arrived[i]));
    }
    return STRAIT_OK;
}

static void drop_step(struct strait_inbox *inbox, int index) {
    inbox->n_leading[index] = 0;
    for (int m = 0; inbox->messages[index] != NULL && m < inbox->n_microbatches; m++) {
        strait_msg_close(&inbox->messages[index][m]);
        if (inbox->arrived[index] != NULL) inbox->arrived[index][m] = 0;
    }
}

static void drop_all(struct strait_inbox *inbox) {
    for (int i = 0; i < STRAIT_INBOX_STEPS; i++)
        drop_step(inbox, i);
    while (inbox->first != NULL) {
        struct strait_msg *msg = strait_inbox_take_valid(inbox);
        strait_msg_close(&msg);
    }
}

void strait_inbox_fini(struct strait_inbox *inbox) {
    drop_all(inbox);
    for (int i = 0; i < STRAIT_INBOX_STEPS; i++) {
        strait_alloc_free(inbox->messages[i]);
        strait_alloc_free(inbox->arrived[i]);
    }
    *inbox = (struct strait_inbox){0};
}

/* Index of a step in the rings. */
static int index_of(int64_t step) {
    return (int)(step % STRAIT_INBOX_STEPS);
}

/* Counts on from where the last call stopped. */
static void count_leading(struct strait_inbox *inbox, int index) {
    const unsigned char *arrived = inbox->arrived[index];
    int *n = &inbox->n_leading[index];
    if (inbox->order == NULL) {
        *n = strait_schedule_leading(arrived, *n, inbox->n_microbatches);
        return;
    }
    while (*n < inbox->n_order && arrived[inbox->order[*n]])
        (*n)++;
}

int strait_inbox_leading(const struct strait_inbox *inbox, int ahead) {
    return inbox->n_leading[index_of(inbox->step + ahead)];
}

void strait_inbox_await(struct strait_inbox *inbox, const int *order, int n) {
    inbox->order = order;
    inbox->n_order = n;
}

void strait_inbox_begin(struct strait_inbox *inbox, int64_t step) {
    /* A step that is repeated keeps what has arrived for it. */
    if (step != inbox->step) drop_step(inbox, index_of(inbox->step));
    inbox->step = step;
    for (int i = 0; i < STRAIT_INBOX_STEPS; i++) { // the order may be another one by now
        inbox->n_leading[i] = 0;
        count_leading(inbox, i);
    }
}

void strait_inbox_reset(struct strait_inbox *inbox, int64_t step) {
    drop_all(inbox);
    inbox->step = step;
}

int strait_inbox_store(struct strait_inbox *inbox, struct strait_msg *msg) {
    const int64_t ahead = (int64_t)msg->step - inbox->step;
    if (ahead < 0 || ahead >= STRAIT_INBOX_STEPS || msg->microbatch >= inbox->n_microbatches)
        return 0;
    const int index = index_of(msg->step);
    if (inbox->arrived[index][msg->microbatch]) return 0;
    inbox->messages[index][msg->microbatch] = msg;
    inbox->arrived[index][msg->microbatch] = 1;
    count_leading(inbox, index);
    return 1;
}

/* The limit bounds the memory that a misbehaving neighbour can make us hold. */
int strait_inbox_store_valid(struct strait_inbox *inbox, struct strait_msg *msg) {
    if (inbox->n_queued == inbox->n_valid_max) return 0;
    inbox->n_queued++;
    msg->next = NULL;
    if (inbox->first == NULL)
        inbox->first = msg;
    else
        inbox->last->next = msg;
    inbox->last = msg;
    return 1;
}

struct strait_msg *strait_inbox_take(struct strait_inbox *inbox, int64_t step, int64_t microbatch) {
    struct strait_msg **slot = &inbox->messages[index_of(step)][microbatch];
    struct strait_msg *msg = *slot;
    assert(msg != NULL);
    *slot = NULL;
    return msg;
}

struct strait_msg *strait_inbox_take_valid(struct strait_inbox *inbox) {
    struct strait_msg *msg = inbox->first;
    assert(msg != NULL);
    inbox->first = msg->next;
    inbox->n_queued--;
    return msg;
}
