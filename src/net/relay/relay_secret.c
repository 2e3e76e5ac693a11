#include "net/relay/relay_secret.h"

#include "base/alloc.h"
#include "base/digest/sha256.h"
#include "base/file.h"
#include "net/core/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
    HALF = STRAIT_RELAY_TOKEN / 2, // 128 bits each: nobody guesses a token, nor forges one
    FILE_MAX = 256
};

/* A secret has as many digits as a fingerprint, whose text and parser are used. */
static strait_err write_secret(int fd, const char *path) {
    strait_fingerprint digits;
    char line[STRAIT_FINGERPRINT_TEXT + 1];
    STRAIT_TRY(strait_identity_random(digits.bytes, sizeof digits.bytes));
    strait_fingerprint_text(&digits, line);
    const size_t n = strlen(line);
    line[n] = '\n';
    if (write(fd, line, n + 1) != (ssize_t)(n + 1) || fsync(fd) != 0)
        return STRAIT_FAIL(STRAIT_EIO,
                           "%s: cannot write the secret; check that the disk is not full", path);
    return STRAIT_OK;
}

strait_err strait_relay_secret_create(const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return STRAIT_FAIL(STRAIT_EEXISTS, "%s already exists", path);
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    const strait_err err = write_secret(fd, path);
    (void)close(fd);
    if (err != STRAIT_OK) (void)unlink(path);
    return err;
}

strait_err strait_relay_secret_load(const char *path, strait_relay_secret *out) {
    char *text = NULL;
    size_t n = 0;
    strait_fingerprint digits = {{0}};
    const strait_err err = strait_file_read(path, FILE_MAX, &text, &n);
    if (err != STRAIT_OK && err != STRAIT_EDATA) return err; // EDATA: it is too long
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        text[--n] = '\0';
    /* The error of the parser would show what the file holds. */
    const int is_valid = err == STRAIT_OK && strlen(text) == n &&
                         strait_fingerprint_parse(text, &digits) == STRAIT_OK;
    strait_alloc_free(text);
    if (!is_valid)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: expected the secret of a relay, 64 hexadecimal digits; \"strait "
                           "relay --secret\" writes one to a new file",
                           path);
    memcpy(out->bytes, digits.bytes, sizeof out->bytes);
    return STRAIT_OK;
}

strait_err strait_relay_secret_sign(const strait_relay_secret *secret, strait_relay_token *token) {
    strait_digest digest;
    STRAIT_TRY(
        strait_hmac_sha256(secret->bytes, sizeof secret->bytes, token->bytes, HALF, &digest));
    memcpy(token->bytes + HALF, digest.bytes, HALF);
    return STRAIT_OK;
}

strait_err strait_relay_secret_address(const strait_relay_secret *secret, const char *where,
                                       const strait_relay_token *token, char *out,
                                       size_t capacity) {
    strait_relay_token made = *token;
    if (secret != NULL) STRAIT_TRY(strait_relay_secret_sign(secret, &made));
    return strait_relay_address_print(where, &made, out, capacity);
}

int strait_relay_secret_accepts(const strait_relay_secret *secret,
                                const strait_relay_token *token) {
    strait_relay_token expected = *token;
    return strait_relay_secret_sign(secret, &expected) == STRAIT_OK &&
           strait_relay_token_equal(&expected, token);
}
