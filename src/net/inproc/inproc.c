/* inproc.c - the transport between threads of one process: links made of mails, over the mailboxes
 * of a network. */
#include "net/inproc/mailbox.h"

#include <stdio.h>

/* A post knows mailboxes as untyped pointers; these functions give them their type. */

static strait_err open_box(const strait_transport_config *config, void **out) {
    struct strait_mailbox *mailbox = NULL;
    if (config->network == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the inproc transport needs config.network");
    STRAIT_TRY(strait_mailbox_open(config->network, &mailbox));
    *out = mailbox;
    return STRAIT_OK;
}

static void close_box(void **mailbox) {
    struct strait_mailbox *closed = *mailbox;
    strait_mailbox_close(&closed);
    *mailbox = NULL;
}

static uint64_t number_of(void *mailbox) {
    return strait_mailbox_number(mailbox);
}

static strait_err bind_box(void *mailbox, const char *address, char out[STRAIT_ADDRESS_MAX]) {
    STRAIT_TRY(strait_mailbox_bind(mailbox, address));
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%s", address);
    return STRAIT_OK;
}

static strait_err find_box(void *mailbox, const char *address, uint64_t *out) {
    return strait_mailbox_find(mailbox, address, out);
}

static strait_err send_mail(void *mailbox, uint64_t to, struct strait_mail *mail) {
    return strait_mailbox_send(mailbox, to, mail);
}

static int receive_mail(void *mailbox, int64_t until_ns, struct strait_mail *out) {
    return strait_mailbox_receive(mailbox, until_ns, out);
}

static void wake_box(void *mailbox) {
    strait_mailbox_wake(mailbox);
}

static const struct strait_post_ops post = {
    .scheme = "inproc",
    .open = open_box,
    .close = close_box,
    .number = number_of,
    .bind = bind_box,
    .find = find_box,
    .send = send_mail,
    .receive = receive_mail,
    .wake = wake_box,
};

static strait_err init(struct strait_transport *t) {
    return strait_mail_init(t, &post);
}

const struct strait_transport_ops strait_transport_inproc = {
    .scheme = "inproc", .init = init, STRAIT_MAIL_TRANSPORT};
