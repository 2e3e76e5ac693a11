/* relay_wire.c - see relay_wire.h and docs/wire.md, section 6. */
#include "net/relay/relay_wire.h"

#include "net/core/identity.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* Offsets in requests and replies, as in docs/wire.md. */
enum {
    AT_VERSION = 4,
    AT_ROLE = 5,
    AT_STATUS = 5,
    AT_TOKEN = 8
};
static const unsigned char magic[4] = {'S', 't', 'R', 'l'};
static const char scheme[] = "relay://"; // of addresses that people paste

/* Constant time, as the header promises: the relay compares tokens of strangers. */
int strait_relay_token_equal(const strait_relay_token *a, const strait_relay_token *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void strait_relay_request_pack(strait_relay_role role, const strait_relay_token *token,
                               unsigned char out[STRAIT_RELAY_REQUEST]) {
    memset(out, 0, STRAIT_RELAY_REQUEST);
    memcpy(out, magic, sizeof magic);
    out[AT_VERSION] = STRAIT_RELAY_VERSION;
    out[AT_ROLE] = (unsigned char)role;
    memcpy(out + AT_TOKEN, token->bytes, sizeof token->bytes);
}

unsigned char strait_relay_request_version(const unsigned char in[STRAIT_RELAY_REQUEST]) {
    return in[AT_VERSION];
}

strait_err strait_relay_request_unpack(const unsigned char in[STRAIT_RELAY_REQUEST],
                                       strait_relay_role *role, strait_relay_token *token) {
    if (memcmp(in, magic, sizeof magic) != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "not a relay request");
    if (in[AT_VERSION] != STRAIT_RELAY_VERSION)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "a peer uses relay protocol version %d, this relay version %d: install "
                           "the same release of strait on both",
                           in[AT_VERSION], STRAIT_RELAY_VERSION);
    /* Reserved bytes must be zero, so that a later version can give them a meaning. */
    if (in[AT_ROLE] > STRAIT_RELAY_LISTENS || in[6] != 0 || in[7] != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "malformed relay request");
    *role = in[AT_ROLE] == STRAIT_RELAY_LISTENS ? STRAIT_RELAY_LISTENS : STRAIT_RELAY_DIALS;
    memcpy(token->bytes, in + AT_TOKEN, sizeof token->bytes);
    return STRAIT_OK;
}

void strait_relay_reply_pack(strait_relay_status status, unsigned char out[STRAIT_RELAY_REPLY]) {
    memset(out, 0, STRAIT_RELAY_REPLY);
    memcpy(out, magic, sizeof magic);
    out[AT_VERSION] = STRAIT_RELAY_VERSION;
    out[AT_STATUS] = (unsigned char)status;
}

/* The error codes decide what the caller does: EAGAIN and ECLOSED lead to another attempt, EPROTO
 * is final. */
strait_err strait_relay_reply_unpack(const unsigned char in[STRAIT_RELAY_REPLY]) {
    if (memcmp(in, magic, sizeof magic) != 0)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "the other end is not a relay: check the relay's address");
    if (in[AT_VERSION] != STRAIT_RELAY_VERSION)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "the relay uses relay protocol version %d, this program version %d: "
                           "install the same release of strait on both sides",
                           in[AT_VERSION], STRAIT_RELAY_VERSION);
    switch (in[AT_STATUS]) {
    case STRAIT_RELAY_OK: return STRAIT_OK;
    case STRAIT_RELAY_NO_PEER:
        return STRAIT_FAIL(STRAIT_EAGAIN,
                           "no peer came to the relay with this token; check that it runs");
    case STRAIT_RELAY_FULL:
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "the relay has too many connections, in all or from this "
                           "address; raise its limits or wait");
    case STRAIT_RELAY_BAD_REQUEST:
        return STRAIT_FAIL(STRAIT_EPROTO, "the relay rejected our request as malformed");
    case STRAIT_RELAY_DENIED:
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "the relay is not open to everyone: the address needs a token made with "
                           "its secret (strait host --relay-secret)");
    default:
        return STRAIT_FAIL(STRAIT_EPROTO, "the relay sent the unknown status %d", in[AT_STATUS]);
    }
}

int strait_relay_is_address(const char *address) {
    return strncmp(address, scheme, sizeof scheme - 1) == 0;
}

strait_err strait_relay_address_parse(const char *address, char *out_where, size_t capacity,
                                      strait_relay_token *out_token) {
    const char *where = strait_relay_is_address(address) ? address + sizeof scheme - 1 : "";
    const char *slash = strchr(where, '/');
    strait_fingerprint token; // it has as many digits as a fingerprint, whose parser is used
    if (slash == NULL || slash == where || (size_t)(slash - where) >= capacity ||
        strait_fingerprint_parse(slash + 1, &token) != STRAIT_OK)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "address '%.40s...': expected relay://HOST:PORT/TOKEN, the token in 64 "
                           "hexadecimal digits",
                           address);
    memcpy(out_where, where, (size_t)(slash - where));
    out_where[slash - where] = 0;
    memcpy(out_token->bytes, token.bytes, sizeof out_token->bytes);
    return STRAIT_OK;
}

strait_err strait_relay_address_print(const char *where, const strait_relay_token *token, char *out,
                                      size_t capacity) {
    strait_fingerprint digits;
    char text[STRAIT_FINGERPRINT_TEXT];
    memcpy(digits.bytes, token->bytes, sizeof digits.bytes);
    strait_fingerprint_text(&digits, text);
    /* A truncated token would silently lead to another address. */
    const int n = snprintf(out, capacity, "%s%s/%s", scheme, where, text);
    if (n > 0 && (size_t)n < capacity) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL, "relay '%.80s': the address is too long", where);
}
