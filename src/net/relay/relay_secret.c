#include "net/relay/relay_secret.h"

#include "base/alloc.h"
#include "base/digest/sha256.h"
#include "base/file.h"
#include "net/core/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum {
    HALF = STRAIT_RELAY_TOKEN / 2, // 128 bits each: nobody guesses a token, nor forges one
    FILE_MAX = 256
};

/* A secret has as many digits as a fingerprint, whose text and parser are used. */
static strait_err write_secret(char *temporary) {
    strait_fingerprint digits;
    char line[STRAIT_FINGERPRINT_TEXT + 1];
    STRAIT_TRY(strait_identity_random(digits.bytes, sizeof digits.bytes));
    strait_fingerprint_text(&digits, line);
    const size_t n = strlen(line);
    line[n] = '\n';
    const int fd = mkstemp(temporary); // with mode 600
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", temporary, uv_strerror(-errno));
    errno = ENOSPC; // of a write that is cut short
    const int is_written = write(fd, line, n + 1) == (ssize_t)(n + 1) && fsync(fd) == 0;
    const int status = errno;
    (void)close(fd);
    return is_written ? STRAIT_OK
                      : STRAIT_FAIL(STRAIT_EIO, "%s: cannot write the secret: %s", temporary,
                                    uv_strerror(-status));
}

/* Another relay that is started with the same new file at that time finds a whole secret in it, and
 * so does one after a power cut: otherwise hosts would have a secret that no relay knows. */
strait_err strait_relay_secret_create(const char *path) {
    char temporary[STRAIT_PATH_MAX];
    if (strait_file_exists(path)) return STRAIT_FAIL(STRAIT_EEXISTS, "%s already exists", path);
    STRAIT_TRY(strait_file_path(temporary, "%s.XXXXXX", path));
    strait_err err = write_secret(temporary);
    if (err == STRAIT_OK && link(temporary, path) != 0)
        err = errno == EEXIST ? STRAIT_FAIL(STRAIT_EEXISTS, "%s already exists", path)
                              : STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, uv_strerror(-errno));
    (void)unlink(temporary);
    return err == STRAIT_OK ? strait_file_sync_parent(path) : err;
}

strait_err strait_relay_secret_load(const char *path, strait_relay_secret *out) {
    char *text = NULL;
    size_t n = 0;
    struct stat about;
    strait_fingerprint digits = {{0}};
    const strait_err err = strait_file_read(path, FILE_MAX, &text, &n);
    if (err != STRAIT_OK && err != STRAIT_EDATA) return err; // EDATA: it is too long
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        text[--n] = '\0';
    /* The parser's own error would show what the file holds. */
    const int is_valid = err == STRAIT_OK && strlen(text) == n &&
                         strait_fingerprint_parse(text, &digits) == STRAIT_OK;
    strait_alloc_free(text);
    if (!is_valid)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: expected the secret of a relay, 64 hexadecimal digits; \"strait "
                           "relay --secret\" writes one to a new file",
                           path);
    if (stat(path, &about) != 0 || (about.st_mode & S_IRWXO) != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: all users may read this secret; run chmod 600 on it", path);
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

strait_err strait_relay_secret_check(const strait_relay_secret *secret,
                                     const strait_relay_token *token) {
    strait_relay_token expected = *token;
    STRAIT_TRY(strait_relay_secret_sign(secret, &expected));
    if (strait_relay_token_equal(&expected, token)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EAUTH,
                       "a token that was not made with this relay's secret: its host needs "
                       "--relay-secret");
}
