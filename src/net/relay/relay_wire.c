#include "net/relay/relay_wire.h"

#include "net/core/identity.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum {
    VERSION = 1
};
static const unsigned char magic[4] = {'S', 't', 'R', 'l'};
static const char scheme[] = "relay://";

int strait_relay_token_equal(const strait_relay_token *a, const strait_relay_token *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void strait_relay_request_pack(strait_relay_role role, const strait_relay_token *token,
                               unsigned char out[STRAIT_RELAY_REQUEST]) {
    memset(out, 0, STRAIT_RELAY_REQUEST);
    memcpy(out, magic, sizeof magic);
    out[4] = VERSION;
    out[5] = (unsigned char)role;
    memcpy(out + 8, token->bytes, sizeof token->bytes);
}

strait_err strait_relay_request_unpack(const unsigned char in[STRAIT_RELAY_REQUEST],
                                       strait_relay_role *role, strait_relay_token *token) {
    if (memcmp(in, magic, sizeof magic) != 0 || in[4] != VERSION || in[5] > 1 || in[6] != 0 ||
        in[7] != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "a greeting that makes no sense to a relay");
    *role = in[5] == STRAIT_RELAY_LISTENS ? STRAIT_RELAY_LISTENS : STRAIT_RELAY_DIALS;
    memcpy(token->bytes, in + 8, sizeof token->bytes);
    return STRAIT_OK;
}

void strait_relay_reply_pack(strait_relay_status status, unsigned char out[STRAIT_RELAY_REPLY]) {
    memset(out, 0, STRAIT_RELAY_REPLY);
    memcpy(out, magic, sizeof magic);
    out[4] = VERSION;
    out[5] = (unsigned char)status;
}

strait_err strait_relay_reply_unpack(const unsigned char in[STRAIT_RELAY_REPLY]) {
    static const char *const reason[STRAIT_RELAY_N_STATUSES] = {
        "", "nobody else came to the relay with this token",
        "the relay has too many connections, or too many from here",
        "the relay does not understand us: another version?"};
    if (memcmp(in, magic, sizeof magic) != 0 || in[5] >= STRAIT_RELAY_N_STATUSES)
        return STRAIT_FAIL(STRAIT_EPROTO, "what answers there is no relay");
    if (in[5] == STRAIT_RELAY_BAD_REQUEST) return STRAIT_FAIL(STRAIT_EPROTO, "%s", reason[in[5]]);
    if (in[5] == STRAIT_RELAY_NO_PEER) return STRAIT_FAIL(STRAIT_EAGAIN, "%s", reason[in[5]]);
    if (in[5] != STRAIT_RELAY_OK) return STRAIT_FAIL(STRAIT_ECLOSED, "%s", reason[in[5]]);
    return STRAIT_OK;
}

int strait_relay_is_address(const char *address) {
    return strncmp(address, scheme, sizeof scheme - 1) == 0;
}

strait_err strait_relay_address_parse(const char *address, char *out_where, size_t capacity,
                                      strait_relay_token *out_token) {
    const char *where = strait_relay_is_address(address) ? address + sizeof scheme - 1 : "";
    const char *slash = strchr(where, '/');
    strait_fingerprint token;
    if (slash == NULL || slash == where || (size_t)(slash - where) >= capacity ||
        strait_fingerprint_parse(slash + 1, &token) != STRAIT_OK) // as many digits
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
    const int n = snprintf(out, capacity, "%s%s/%s", scheme, where, text);
    if (n > 0 && (size_t)n < capacity) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL, "relay at '%.80s': too long an address", where);
}
