/* invite.c - packs an invite into base64url. The alphabet has no character that a shell, a chat
 * program or a URL changes, so a line survives being pasted. */
#include "swarm/invite.h"

#include "base/bytes.h"
#include "base/digest/hash.h"

#include <string.h>

enum {
    VERSION = 1, // rises with every change of the fields
    SUM_BYTES = 4,
    FIXED_BYTES = 1 + STRAIT_RUN_BYTES + STRAIT_FINGERPRINT_BYTES + STRAIT_TOKEN_BYTES + 4 + 8 + 1,
    ADDRESS_LONGEST = 200,
    BYTES_MAX = FIXED_BYTES + ADDRESS_LONGEST + SUM_BYTES
};

static const char scheme[] = "strait1:";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Writes the first hexadecimal digits of a hash, as characters. The checksum detects typing errors;
 * it does not authenticate. */
static void checksum(const unsigned char *data, size_t bytes, unsigned char out[SUM_BYTES]) {
    char text[STRAIT_HASH_TEXT];
    strait_hash_text(data, bytes, text);
    memcpy(out, text, SUM_BYTES);
}

/* Own code, since OpenSSL has only the alphabet with + and /. */
static void encode(const unsigned char *data, size_t bytes, char *out) {
    uint32_t bits = 0;
    int n_bits = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits = bits << 8 | data[i];
        for (n_bits += 8; n_bits >= 6; n_bits -= 6)
            *out++ = digits[bits >> (n_bits - 6) & 63];
    }
    if (n_bits > 0) *out++ = digits[bits << (6 - n_bits) & 63];
    *out = '\0';
}

/* Decodes `n` digits and returns the number of bytes; 0 when a character is not a digit or
 * `capacity` is too small. */
static size_t decode(const char *text, size_t n, unsigned char *out, size_t capacity) {
    uint32_t bits = 0;
    int n_bits = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL) return 0;
        bits = bits << 6 | (uint32_t)(digit - digits);
        n_bits += 6;
        if (n_bits < 8) continue;
        if (bytes == capacity) return 0;
        n_bits -= 8;
        out[bytes++] = (unsigned char)(bits >> n_bits);
    }
    /* Left-over bits must be zero, so that every invite has exactly one text. */
    return (bits & ((1u << n_bits) - 1)) == 0 ? bytes : 0;
}

strait_err strait_invite_format(const strait_invite *invite, char out[STRAIT_INVITE_TEXT]) {
    unsigned char bytes[BYTES_MAX];
    const size_t length = strnlen(invite->address, sizeof invite->address);
    if (length == 0 || length > ADDRESS_LONGEST)
        return STRAIT_FAIL(STRAIT_EINVAL, "an invite needs an address of 1 to %d bytes",
                           ADDRESS_LONGEST);
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_writer_uint(&w, VERSION, 1);
    strait_writer_copy(&w, invite->run, sizeof invite->run);
    strait_writer_copy(&w, invite->key.bytes, sizeof invite->key.bytes);
    strait_writer_copy(&w, invite->token, sizeof invite->token);
    strait_writer_uint(&w, invite->uses, 4);
    strait_writer_uint(&w, invite->expires, 8);
    strait_writer_uint(&w, length, 1);
    strait_writer_copy(&w, invite->address, length);
    const size_t n = FIXED_BYTES + length;
    checksum(bytes, n, bytes + n);
    memcpy(out, scheme, sizeof scheme - 1);
    encode(bytes, n + SUM_BYTES, out + sizeof scheme - 1);
    return STRAIT_OK;
}

/* Every defect has the same remedy, which the message ends with. */
static strait_err fail_invalid(const char *what) {
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "the invite %s: paste the whole line that \"strait host\" printed", what);
}

static strait_err parse_fields(const unsigned char *bytes, size_t n, strait_invite *out) {
    strait_reader r = {bytes, n, 0};
    strait_invite invite = {.uses = 0};
    const uint64_t version = strait_reader_uint(&r, 1);
    if (version != VERSION) return fail_invalid("is of another version of strait");
    strait_reader_copy(&r, invite.run, sizeof invite.run);
    strait_reader_copy(&r, invite.key.bytes, sizeof invite.key.bytes);
    strait_reader_copy(&r, invite.token, sizeof invite.token);
    invite.uses = (uint32_t)strait_reader_uint(&r, 4);
    invite.expires = strait_reader_uint(&r, 8);
    const size_t length = (size_t)strait_reader_uint(&r, 1);
    if (r.is_short || length == 0 || length != r.left || length > ADDRESS_LONGEST)
        return fail_invalid("has fields that do not match its length");
    strait_reader_copy(&r, invite.address, length);
    /* The address is printed and passed to the resolver: only visible ASCII. */
    for (size_t i = 0; i < length; i++)
        if (invite.address[i] <= ' ' || invite.address[i] > '~')
            return fail_invalid("has an invalid address");
    if (invite.address[0] == ',' || invite.address[length - 1] == ',' ||
        strstr(invite.address, ",,") != NULL)
        return fail_invalid("has an invalid address");
    *out = invite;
    return STRAIT_OK;
}

strait_err strait_invite_parse(const char *text, strait_invite *out) {
    static const char blanks[] = " \t\r\n";
    unsigned char bytes[BYTES_MAX];
    unsigned char sum[SUM_BYTES];
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        n--;
    if (n < sizeof scheme || strncmp(text, scheme, sizeof scheme - 1) != 0)
        return fail_invalid("does not begin with \"strait1:\"");
    const size_t n_bytes = decode(text + sizeof scheme - 1, n - (sizeof scheme - 1), bytes,
                                  sizeof bytes);
    if (n_bytes < FIXED_BYTES + SUM_BYTES)
        return fail_invalid("is cut short or has invalid characters");
    checksum(bytes, n_bytes - SUM_BYTES, sum);
    if (memcmp(sum, bytes + n_bytes - SUM_BYTES, SUM_BYTES) != 0) return fail_invalid("is damaged");
    return parse_fields(bytes, n_bytes - SUM_BYTES, out);
}

int strait_invite_is_token(const unsigned char a[STRAIT_TOKEN_BYTES],
                           const unsigned char b[STRAIT_TOKEN_BYTES]) {
    volatile unsigned char differs = 0; // volatile: the compiler must not return early
    for (int i = 0; i < STRAIT_TOKEN_BYTES; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[i]));
    return differs == 0;
}
