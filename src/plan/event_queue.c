#include "plan/event_queue.h"

#include "base/alloc.h"

#include <assert.h>

strait_err strait_event_queue_init(struct strait_event_queue *queue, size_t capacity) {
    *queue = (struct strait_event_queue){.capacity = capacity};
    return strait_alloc(capacity, sizeof *queue->events, "simulation", (void **)&queue->events);
}

void strait_event_queue_fini(struct strait_event_queue *queue) {
    strait_alloc_free(queue->events);
    *queue = (struct strait_event_queue){0};
}

static int is_before(const strait_event *a, const strait_event *b) {
    return a->time_s < b->time_s || (!(b->time_s < a->time_s) && a->order < b->order);
}

static void swap(strait_event *a, strait_event *b) {
    const strait_event kept = *a;
    *a = *b;
    *b = kept;
}

void strait_event_queue_add(struct strait_event_queue *queue, double time_s, int kind, int id) {
    assert(queue->n < queue->capacity);
    size_t at = queue->n++;
    queue->events[at] = (strait_event){time_s, queue->n_added++, kind, id};
    for (; at > 0 && is_before(&queue->events[at], &queue->events[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&queue->events[at], &queue->events[(at - 1) / 2]);
}

int strait_event_queue_next(struct strait_event_queue *queue, strait_event *out) {
    if (queue->n == 0) return 0;
    *out = queue->events[0];
    queue->events[0] = queue->events[--queue->n];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < queue->n; child++)
            if (is_before(&queue->events[child], &queue->events[least])) least = child;
        if (least == at) return 1;
        swap(&queue->events[at], &queue->events[least]);
        at = least;
    }
}
