/* liar.c - the program, with a transport that changes what it sends: liar RULES COMMAND ARGS...
 *
 * Everything is the code of this project, commands included; only the list of transports is
 * another. "liar --lie heartbeat.progress=random join INVITE" is a worker that lies to its
 * coordinator and to its neighbours, "liar ... host RUN" a coordinator that lies to its workers.
 * lies.h has the rules.
 *
 *   liar --list SENDER    prints every field that a worker, a neighbour or a host sends, with its
 * type liar --matrix SENDER  prints every rule FIELD=VALUE about them */
#include "liar/lies.h"
#include "liar/messages.h"
#include "liar/values.h"
#include "net/core/transport.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int strait_main(int argc, char **argv); // of programs/strait.c

extern const struct strait_transport_ops strait_transport_inproc, strait_transport_tls;

static struct strait_transport_ops lying_tls;

/* Takes the place of net/core/registry.c, which the linker then leaves in its archive. */
const struct strait_transport_ops *const strait_transports[] = {
    &strait_transport_inproc,
    &lying_tls,
    NULL,
};

/* The second copy may not fit the queue of the link; it is then dropped, as a lie that failed. */
static void send_again(struct strait_link *link, const struct strait_msg *msg) {
    struct strait_msg *copy = NULL;
    if (message_like(msg, msg->size, &copy) != STRAIT_OK) return;
    memcpy(copy->body, msg->body, msg->size);
    (void)strait_transport_tls.send(link, &copy);
    strait_msg_close(&copy);
}

/* A message that is not accepted stays with the caller as it was, and is changed when it comes
 * again.
 */
static strait_err send_lie(struct strait_link *link, struct strait_msg **msg) {
    struct verdict verdict;
    lies_apply(*msg, &verdict);
    const struct timespec pause = {verdict.delay_ms / 1000, verdict.delay_ms % 1000 * 1000000L};
    if (verdict.delay_ms > 0) (void)nanosleep(&pause, NULL);
    if (verdict.changed == NULL) return strait_transport_tls.send(link, msg);
    struct strait_msg *sent = verdict.changed;
    strait_err err = STRAIT_OK;
    if (!verdict.is_dropped && verdict.is_doubled) send_again(link, sent);
    if (!verdict.is_dropped) err = strait_transport_tls.send(link, &sent);
    strait_msg_close(&sent);
    if (err == STRAIT_OK)
        strait_msg_close(msg);
    else
        lies_undo(&verdict);
    return err;
}

static void print_field(const char *name, const strait_field *field) {
    printf("%s %s\n", name, strait_field_type_name(field->type));
}

static void print_lies(const char *name, const strait_field *field) {
    for (const char *const *value = values_of(field->type); *value != NULL; value++)
        printf("%s=%s\n", name, *value);
}

static void print_rules_about(const message_row *row, const char *kind) {
    static const char *const names[] = {"drop", "duplicate", "short", "long", "zero"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int is_zero = strcmp(names[i], "zero") == 0; // for messages with more than fields
        if (!is_zero || row->uses_frame)
            printf("--%s:%s%s%s\n", names[i], row->name, kind[0] != '\0' ? "." : "", kind);
    }
}

static void print_matrix(int senders) {
    each_field(senders, print_lies);
    for (int i = 0; message_at(i) != NULL; i++) {
        const message_row *row = message_at(i);
        if ((row->senders & senders) == 0) continue;
        if (row->n_kinds == 0) print_rules_about(row, "");
        for (int k = 1; k < row->n_kinds; k++)
            print_rules_about(row, row->named(k)->name);
    }
}

static int sender_of(const char *name) {
    if (strcmp(name, "worker") == 0) return FROM_WORKER;
    if (strcmp(name, "neighbour") == 0) return FROM_NEIGHBOUR;
    return strcmp(name, "host") == 0 ? FROM_HOST : 0;
}

int main(int argc, char **argv) {
    if (check_messages() != NULL) {
        fprintf(stderr, "liar: tests/liar/messages.c has no row for message '%s'\n",
                check_messages());
        return 2;
    }
    if (argc == 3 && strcmp(argv[1], "--list") == 0) each_field(sender_of(argv[2]), print_field);
    if (argc == 3 && strcmp(argv[1], "--matrix") == 0) print_matrix(sender_of(argv[2]));
    if (argc == 3 && (strcmp(argv[1], "--list") == 0 || strcmp(argv[1], "--matrix") == 0))
        return sender_of(argv[2]) == 0 ? 2 : 0;
    lying_tls = strait_transport_tls;
    lying_tls.send = send_lie;
    const int n = lies_parse(argc - 1, argv + 1);
    if (n < 0) return 2;
    argv[n] = argv[0];
    return strait_main(argc - n, argv + n);
}
