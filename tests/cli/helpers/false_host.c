/* false_host.c - the program, whose coordinator abuses its workers. FALSE_HOST says how:
 *
 *   windows       announces a validation that takes far more memory than the run needs
 *   dial=ADDRESS  names ADDRESS as that of every neighbour to dial
 *   listen=ADDR   asks its workers to listen at ADDR
 *
 * The linker's --wrap replaces the function that packs tasks. FALSE_CLOCK names a file; while it
 * exists, the hours of "strait join --hours" are open. */
#include "lending.h"
#include "swarm/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                                   struct strait_msg **out);
strait_err __wrap_strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                                   struct strait_msg **out);
int __real_strait_lending_is_open(const strait_lending *lending);
int __wrap_strait_lending_is_open(const strait_lending *lending);

/* What follows "NAME=" in FALSE_HOST; NULL: it says something else. */
static const char *lie(const char *name) {
    const char *text = getenv("FALSE_HOST"); // NOLINT(concurrency-mt-unsafe) never changed
    const size_t n = strlen(name);
    if (text == NULL || strncmp(text, name, n) != 0) return NULL;
    return text[n] == '=' ? text + n + 1 : text + n;
}

static void replace(strait_task_peer *peer, const char *address, int must_listen) {
    if (!peer->is_present) return;
    peer->must_listen = must_listen;
    (void)snprintf(peer->address, sizeof peer->address, "%s", address);
}

strait_err __wrap_strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                                   struct strait_msg **out) {
    strait_task lying = *task;
    const int is_about_peers = task->kind == STRAIT_TASK_LISTEN ||
                               task->kind == STRAIT_TASK_CONNECT;
    const char *dial = lie("dial"), *listen = lie("listen");
    if (task->kind == STRAIT_TASK_ASSIGN && lie("windows") != NULL)
        lying.assign.valid_windows = STRAIT_VALID_MAX;
    if (is_about_peers && (dial != NULL || listen != NULL)) {
        replace(&lying.neighbours.prev, dial != NULL ? dial : listen, listen != NULL);
        replace(&lying.neighbours.next, dial != NULL ? dial : listen, listen != NULL);
    }
    return __real_strait_task_pack(pool, &lying, out);
}

int __wrap_strait_lending_is_open(const strait_lending *lending) {
    const char *clock = getenv("FALSE_CLOCK"); // NOLINT(concurrency-mt-unsafe) never changed
    if (clock == NULL || !lending->has_hours) return __real_strait_lending_is_open(lending);
    return faccessat(-1, clock, F_OK, 0) == 0;
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */
