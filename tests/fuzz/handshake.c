/* Hostile first bytes of a stream. The first byte of the input selects:
 *
 *   even: the rest is fed to a server's TLS as if read from the socket;
 *   odd:  the rest is a script against a real handshake between two ends: ciphertext is passed on
 *         unchanged, flipped, dropped or duplicated, and then arbitrary plain text follows.
 *
 * Neither may crash, hang, or end with a key that the other end does not hold. */
#include "net/core/handshake.h"

#include "net/core/frame.h"
#include "net/tls/tls.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    EXCHANGES = 24,
    WIRE_MAX = 8192
};

static struct strait_identity *alice, *bob;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return strait_identity_generate(&alice) != STRAIT_OK ||
           strait_identity_generate(&bob) != STRAIT_OK;
}

static void feed_server(const unsigned char *data, size_t size) {
    struct strait_tls *server = NULL;
    if (strait_tls_open(bob, 1, &server) != STRAIT_OK) return;
    unsigned char out[4096];
    strait_err err = STRAIT_EAGAIN;
    while (size > 0 && err == STRAIT_EAGAIN) {
        const size_t n = strait_tls_feed(server, data, size);
        data += n;
        size -= n;
        err = strait_tls_handshake(server);
        while (strait_tls_take(server, out, sizeof out) > 0) {
        }
        if (n == 0) break;
    }
    if (err == STRAIT_OK) abort(); // impossible: the input contains no signature
    strait_tls_close(&server);
}

struct script {
    const unsigned char *at;
    size_t left;
};

static unsigned char next_byte(struct script *s) {
    if (s->left == 0) return 0;
    s->left--;
    return *s->at++;
}

/* Moves ciphertext from one end to the other as the script says. */
static void transfer(struct strait_tls *from, struct strait_tls *to, struct script *s) {
    unsigned char wire[WIRE_MAX];
    const size_t n = strait_tls_take(from, wire, sizeof wire);
    if (n == 0) return;
    const unsigned char action = next_byte(s);
    if (action % 8 == 1)
        wire[(next_byte(s) * 256u + next_byte(s)) % n] ^= (unsigned char)(1 << action / 32);
    const size_t keep = action % 8 == 2 ? n * next_byte(s) / 256 : n;
    (void)strait_tls_feed(to, wire, keep);
    if (action % 8 == 3) (void)strait_tls_feed(to, wire, n);
}

static void read_frames(struct strait_tls *tls) {
    struct strait_msg_pool *pool = NULL;
    if (strait_msg_pool_open(&pool) != STRAIT_OK) return;
    struct strait_frame_reader reader = {.pool = pool, .limit = 4096};
    strait_err err = STRAIT_OK;
    size_t n = 1;
    while (err == STRAIT_OK && n > 0) {
        size_t capacity = 0;
        unsigned char *space = strait_frame_space(&reader, &capacity);
        err = strait_tls_read(tls, space, capacity, &n);
        struct strait_msg *msg = NULL;
        if (err == STRAIT_OK && n > 0) err = strait_frame_filled(&reader, n, &msg);
        strait_hello hello;
        if (msg != NULL) (void)strait_hello_unpack(msg, &hello);
        strait_msg_close(&msg);
    }
    strait_frame_reader_fini(&reader);
    strait_msg_pool_close(&pool);
}

static void disturb_handshake(struct script s) {
    struct strait_tls *client = NULL, *server = NULL;
    strait_err c = strait_tls_open(alice, 0, &client), d = strait_tls_open(bob, 1, &server);
    if (c != STRAIT_OK || d != STRAIT_OK) abort();
    c = d = STRAIT_EAGAIN;
    for (int i = 0; i < EXCHANGES && (c == STRAIT_EAGAIN || d == STRAIT_EAGAIN); i++) {
        if (c == STRAIT_EAGAIN) c = strait_tls_handshake(client);
        transfer(client, server, &s);
        if (d == STRAIT_EAGAIN) d = strait_tls_handshake(server);
        transfer(server, client, &s);
    }
    if (c == STRAIT_OK &&
        !strait_fingerprint_equal(strait_tls_peer(client), strait_identity_fingerprint(bob)))
        abort();
    if (d == STRAIT_OK &&
        !strait_fingerprint_equal(strait_tls_peer(server), strait_identity_fingerprint(alice)))
        abort();
    if (c == STRAIT_OK && d == STRAIT_OK && s.left > 0) {
        const size_t n = s.left < STRAIT_TLS_RECORD ? s.left : STRAIT_TLS_RECORD;
        if (strait_tls_write(client, s.at, n) == STRAIT_OK) {
            s = (struct script){0};
            transfer(client, server, &s);
            read_frames(server);
        }
    }
    strait_tls_close(&client);
    strait_tls_close(&server);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size < 2) return 0;
    if (data[0] % 2 == 0)
        feed_server(data + 1, size - 1);
    else
        disturb_handshake((struct script){.at = data + 1, .left = size - 1});
    return 0;
}
