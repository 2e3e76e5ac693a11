/* admission_invites.c - the invites of a run: tokens, how often and how long each is valid.
 *
 * The first invite is the one that the host prints; its token is in the entry of the run, so that a
 * restarted host prints the same line. Of further invites only a digest of the token is kept. */
#include "base/bytes.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ENTRY_BYTES = STRAIT_DIGEST_BYTES + 4 + 4 + 8,
    COUNT_BYTES = 4
};

static const char prefix[] = "invite/";
static const char first_path[] = "invite/first"; // how often the first invite was used

static struct host_invite *find_invite(struct host *h, const strait_digest *digest) {
    for (int i = 0; i < STRAIT_HOST_INVITES; i++) {
        struct host_invite *invite = &h->admission.invites[i];
        if (invite->id != 0 && strait_digest_equal(&invite->token, digest)) return invite;
    }
    return NULL;
}

strait_err strait_host_check_token(struct host *h, const unsigned char token[STRAIT_TOKEN_BYTES],
                                   struct host_invite **out) {
    strait_digest digest;
    STRAIT_TRY(strait_sha256(token, STRAIT_TOKEN_BYTES, &digest));
    *out = find_invite(h, &digest);
    if (*out == NULL && !strait_invite_is_token(token, h->invite.token))
        return STRAIT_FAIL(STRAIT_EAUTH, "the token is wrong: ask for a new invite");
    const uint64_t expires = *out != NULL ? (*out)->expires : h->invite.expires;
    const uint32_t uses = *out != NULL ? (*out)->uses : h->invite.uses;
    const uint32_t n_used = *out != NULL ? (*out)->n_used : h->admission.n_used;
    if (expires != 0 && (uint64_t)time(NULL) > expires)
        return STRAIT_FAIL(STRAIT_EAUTH, "the invite has expired: ask for a new one");
    if (uses != 0 && n_used >= uses)
        return STRAIT_FAIL(STRAIT_EAUTH,
                           "the invite was used %u times, which is its limit: ask for another",
                           uses);
    return STRAIT_OK;
}

/* Written before the worker gets an answer, so that a restarted host knows of the use. */
static strait_err put_invite(struct host *h, const struct host_invite *invite) {
    char path[STRAIT_METASTORE_KEY_MAX];
    unsigned char bytes[ENTRY_BYTES];
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_writer_copy(&w, invite->token.bytes, STRAIT_DIGEST_BYTES);
    strait_writer_uint(&w, invite->uses, 4);
    strait_writer_uint(&w, invite->n_used, 4);
    strait_writer_uint(&w, invite->expires, 8);
    (void)snprintf(path, sizeof path, "%s%u", prefix, invite->id);
    return strait_host_put_once(h, path, bytes, sizeof bytes);
}

static strait_err put_count(struct host *h) {
    unsigned char bytes[COUNT_BYTES];
    strait_put_u32(bytes, h->admission.n_used);
    return strait_host_put_once(h, first_path, bytes, sizeof bytes);
}

strait_err strait_host_use_invite(struct host *h, struct host_invite *invite) {
    uint32_t *n_used = invite != NULL ? &invite->n_used : &h->admission.n_used;
    ++*n_used;
    const strait_err err = invite != NULL ? put_invite(h, invite) : put_count(h);
    if (err != STRAIT_OK) --*n_used;
    return err;
}

/* Formats the line of an invite that has this run's address and key. */
static strait_err format_line(const struct host *h, const unsigned char token[STRAIT_TOKEN_BYTES],
                              uint32_t uses, uint64_t expires, char line[STRAIT_INVITE_TEXT]) {
    strait_invite invite = h->invite;
    memcpy(invite.token, token, STRAIT_TOKEN_BYTES);
    invite.uses = uses;
    invite.expires = expires;
    return strait_invite_format(&invite, line);
}

/* The number of an invite is never used again, so that revoking by number cannot hit another. */
strait_err strait_host_make_invite(struct host *h, uint32_t uses, uint64_t expires,
                                   struct host_invite **out, char line[STRAIT_INVITE_TEXT]) {
    unsigned char token[STRAIT_TOKEN_BYTES];
    struct host_invite *invite = NULL;
    for (int i = 0; i < STRAIT_HOST_INVITES && invite == NULL; i++)
        if (h->admission.invites[i].id == 0) invite = &h->admission.invites[i];
    if (invite == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the run has %d invites, which is the limit: revoke one",
                           STRAIT_HOST_INVITES);
    STRAIT_TRY(strait_identity_random(token, sizeof token));
    struct host_invite made = {
        .id = h->admission.last_invite + 1, .uses = uses, .expires = expires};
    STRAIT_TRY(strait_sha256(token, sizeof token, &made.token));
    STRAIT_TRY(format_line(h, token, uses, expires, line));
    STRAIT_TRY(put_invite(h, &made));
    h->admission.last_invite = made.id;
    *invite = made;
    *out = invite;
    return STRAIT_OK;
}

strait_err strait_host_revoke_invite(struct host *h, uint32_t id) {
    char path[STRAIT_METASTORE_KEY_MAX];
    for (int i = 0; i < STRAIT_HOST_INVITES; i++) {
        struct host_invite *invite = &h->admission.invites[i];
        if (id == 0 || invite->id != id) continue;
        (void)snprintf(path, sizeof path, "%s%u", prefix, id);
        STRAIT_TRY(strait_host_remove(h, path));
        *invite = (struct host_invite){0};
        return STRAIT_OK;
    }
    return STRAIT_FAIL(
        STRAIT_EINVAL,
        "there is no invite %u: see \"strait swarm invite FOLDER --list\"; the first "
        "invite is replaced by \"strait swarm rotate\"",
        id);
}

strait_err strait_host_rotate_token(struct host *h, char line[STRAIT_INVITE_TEXT]) {
    unsigned char token[STRAIT_TOKEN_BYTES], old[STRAIT_TOKEN_BYTES];
    const uint32_t n_used = h->admission.n_used;
    STRAIT_TRY(strait_identity_random(token, sizeof token));
    strait_host_keep_connected(h); // they have the old token and must be able to reconnect
    memcpy(old, h->invite.token, sizeof old);
    memcpy(h->invite.token, token, sizeof token);
    h->admission.n_used = 0;
    strait_err err = strait_host_save_run(h);
    if (err == STRAIT_OK) err = put_count(h);
    if (err == STRAIT_OK) return strait_invite_format(&h->invite, line);
    memcpy(h->invite.token, old, sizeof old);
    h->admission.n_used = n_used;
    return err;
}

strait_err strait_host_read_invite(struct host *h, const strait_metastore_entry *entry) {
    struct host_admission *a = &h->admission;
    strait_reader r = {entry->data, entry->bytes, 0};
    if (strncmp(entry->key, prefix, sizeof prefix - 1) != 0) return STRAIT_OK;
    if (strcmp(entry->key, first_path) == 0) {
        a->n_used = (uint32_t)strait_reader_uint(&r, 4);
        a->has_count = 1;
        return STRAIT_OK;
    }
    struct host_invite invite = {.id = (uint32_t)strtoul(entry->key + sizeof prefix - 1, NULL, 10)};
    strait_reader_copy(&r, invite.token.bytes, STRAIT_DIGEST_BYTES);
    invite.uses = (uint32_t)strait_reader_uint(&r, 4);
    invite.n_used = (uint32_t)strait_reader_uint(&r, 4);
    invite.expires = strait_reader_uint(&r, 8);
    if (invite.id > a->last_invite) a->last_invite = invite.id;
    for (int i = 0; i < STRAIT_HOST_INVITES && !r.is_short && invite.id != 0; i++) {
        if (a->invites[i].id != 0) continue;
        a->invites[i] = invite;
        break;
    }
    return STRAIT_OK;
}
