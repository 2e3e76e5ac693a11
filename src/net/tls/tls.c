/* tls.c - OpenSSL between two memory buffers (a BIO pair). */
#include "net/tls/tls.h"

#include "base/alloc.h"

#include <openssl/err.h>

enum {
    WIRE_BUFFER = 64 * 1024, // ciphertext held per direction inside the BIO pair
    CERTIFICATES_MAX = 4096  // bounds what a peer can make us parse; ours has about 300 bytes
};

struct strait_tls {
    SSL_CTX *context;
    SSL *ssl;
    BIO *wire; // our end of the pair; the other belongs to ssl
    strait_fingerprint peer;
    int is_ready;
};

/* Accepts any well-formed certificate: TLS proves that the peer holds its key, and the caller
 * checks the key after the handshake, when it can send the peer a reason for a refusal. */
static int accept_any(X509_STORE_CTX *store, void *unused) {
    (void)unused;
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
}

/* Turns OpenSSL's latest error into ours. */
static strait_err openssl_failure(strait_err err, const char *what) {
    const unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return STRAIT_FAIL(err, "%s: %s", what, reason != NULL ? reason : "no reason given");
}

static int set_up_context(SSL_CTX *context, const struct strait_identity *identity) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(context, accept_any, NULL);
    SSL_CTX_set_max_cert_list(context, CERTIFICATES_MAX);
    /* No sessions: every connection proves the key anew. */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                             "TLS_CHACHA20_POLY1305_SHA256") == 1 &&
           SSL_CTX_set1_sigalgs_list(context, "ed25519") == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1 &&
           SSL_CTX_use_certificate(context, strait_identity_certificate(identity)) == 1 &&
           SSL_CTX_use_PrivateKey(context, strait_identity_key(identity)) == 1;
}

static int set_up_stream(struct strait_tls *tls, int is_server) {
    tls->ssl = SSL_new(tls->context);
    BIO *inner = NULL;
    if (tls->ssl == NULL || BIO_new_bio_pair(&inner, WIRE_BUFFER, &tls->wire, WIRE_BUFFER) != 1)
        return 0;
    SSL_set_bio(tls->ssl, inner, inner);
    if (is_server)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    return 1;
}

strait_err strait_tls_open(const struct strait_identity *identity, int is_server,
                           struct strait_tls **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_tls), "tls stream", &memory));
    struct strait_tls *tls = memory;
    tls->context = SSL_CTX_new(TLS_method());
    if (tls->context == NULL || !set_up_context(tls->context, identity) ||
        !set_up_stream(tls, is_server)) {
        strait_tls_close(&tls);
        return openssl_failure(STRAIT_ENOMEM, "cannot set up TLS");
    }
    *out = tls;
    return STRAIT_OK;
}

void strait_tls_close(struct strait_tls **tls) {
    if (*tls == NULL) return;
    SSL_free((*tls)->ssl);
    BIO_free((*tls)->wire);
    SSL_CTX_free((*tls)->context);
    strait_alloc_free(*tls);
    *tls = NULL;
}

strait_err strait_tls_handshake(struct strait_tls *tls) {
    if (tls->is_ready) return STRAIT_OK;
    ERR_clear_error();
    const int result = SSL_do_handshake(tls->ssl);
    if (result != 1) {
        const int why = SSL_get_error(tls->ssl, result);
        if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return STRAIT_EAGAIN;
        return openssl_failure(STRAIT_EPROTO, "TLS handshake failed");
    }
    /* Only the key of the certificate is used; names and dates are not looked at. */
    X509 *certificate = SSL_get0_peer_certificate(tls->ssl);
    if (certificate == NULL) return STRAIT_FAIL(STRAIT_EAUTH, "the peer sent no certificate");
    STRAIT_TRY(strait_identity_of_key(X509_get0_pubkey(certificate), &tls->peer));
    tls->is_ready = 1;
    return STRAIT_OK;
}

const strait_fingerprint *strait_tls_peer(const struct strait_tls *tls) {
    return &tls->peer;
}

strait_err strait_tls_write(struct strait_tls *tls, const void *data, size_t bytes) {
    /* OpenSSL keeps part of a record when the BIO is full and then expects the same call again;
     * with space for a whole record that never happens. */
    if (WIRE_BUFFER - BIO_ctrl_pending(tls->wire) < STRAIT_TLS_SEALED) return STRAIT_EAGAIN;
    ERR_clear_error();
    const int n = SSL_write(tls->ssl, data, (int)bytes);
    if (n == (int)bytes) return STRAIT_OK;
    return openssl_failure(STRAIT_EPROTO, "TLS write failed");
}

strait_err strait_tls_read(struct strait_tls *tls, void *out, size_t capacity, size_t *out_bytes) {
    ERR_clear_error();
    *out_bytes = 0;
    const int n = SSL_read(tls->ssl, out, capacity > INT32_MAX ? INT32_MAX : (int)capacity);
    if (n > 0) {
        *out_bytes = (size_t)n;
        return STRAIT_OK;
    }
    switch (SSL_get_error(tls->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return STRAIT_OK;
    case SSL_ERROR_ZERO_RETURN:
        return STRAIT_FAIL(STRAIT_ECLOSED, "the peer closed the TLS stream");
    default: return openssl_failure(STRAIT_EPROTO, "TLS read failed");
    }
}

/* May accept less than `bytes` while the BIO is full; the caller offers the rest again. */
size_t strait_tls_feed(struct strait_tls *tls, const void *data, size_t bytes) {
    const int n = BIO_write(tls->wire, data, bytes > INT32_MAX ? INT32_MAX : (int)bytes);
    return n > 0 ? (size_t)n : 0;
}

size_t strait_tls_take(struct strait_tls *tls, void *out, size_t capacity) {
    const int n = BIO_read(tls->wire, out, capacity > INT32_MAX ? INT32_MAX : (int)capacity);
    return n > 0 ? (size_t)n : 0;
}
