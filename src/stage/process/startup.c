#include "stage/process/startup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_MS = 30000
};

/* One error for both sides: lines are written by this program, so a malformed one means that
 * something else answered, such as a shell that prints a greeting. */
static strait_err line_lacks(const char *what) {
    return STRAIT_FAIL(STRAIT_EPROTO, "the startup line of a stage lacks %s", what);
}

/* The path is last, because it may contain spaces. */
strait_err strait_startup_format(const strait_startup *start, char out[STRAIT_STARTUP_LINE]) {
    char key[STRAIT_FINGERPRINT_TEXT];
    char id[2 * STRAIT_RUN_BYTES + 1];
    strait_fingerprint_text(&start->coordinator, key);
    for (size_t i = 0; i < STRAIT_RUN_BYTES; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", start->run_id[i]);
    const int n = snprintf(out, STRAIT_STARTUP_LINE, "%d %d %s %s %s %s %s\n", start->stage,
                           start->replica, start->scheme, id, key, start->address, start->run_path);
    if (n < 0 || n >= STRAIT_STARTUP_LINE)
        return STRAIT_FAIL(STRAIT_EPROTO, "the startup line of a stage is too long");
    return STRAIT_OK;
}

/* Takes the next field of a line, up to a space or the end; 0 when it is empty or does not fit. */
static int take_token(const char **line, char *out, size_t capacity) {
    const size_t n = strcspn(*line, " ");
    if (n == 0 || n >= capacity) return 0;
    memcpy(out, *line, n);
    out[n] = '\0';
    *line += n + ((*line)[n] == ' ');
    return 1;
}

/* Two hexadecimal digits per byte. sscanf would accept signs and spaces, too. */
static strait_err parse_run_id(const char *text, unsigned char out[STRAIT_RUN_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < STRAIT_RUN_BYTES; i++) {
        const char *high = text[2 * i] != '\0' ? strchr(digits, text[2 * i]) : NULL;
        const char *low = high != NULL && text[2 * i + 1] != '\0' ? strchr(digits, text[2 * i + 1])
                                                                  : NULL;
        if (low == NULL) return line_lacks("the run's id");
        out[i] = (unsigned char)((high - digits) * 16 + (low - digits));
    }
    return STRAIT_OK;
}

strait_err strait_startup_parse(const char *line, strait_startup *out) {
    char stage[16];
    char replica[16];
    char key[STRAIT_FINGERPRINT_TEXT];
    char id[2 * STRAIT_RUN_BYTES + 1];
    char *end = NULL;
    *out = (strait_startup){0};
    if (!take_token(&line, stage, sizeof stage) || !take_token(&line, replica, sizeof replica) ||
        !take_token(&line, out->scheme, sizeof out->scheme) || !take_token(&line, id, sizeof id) ||
        !take_token(&line, key, sizeof key) ||
        !take_token(&line, out->address, sizeof out->address) || *line == '\0')
        return line_lacks("a field");
    long number = strtol(stage, &end, 10);
    if (*end != '\0' || number < 0 || number >= STRAIT_RUN_STAGES) return line_lacks("a stage");
    out->stage = (int)number;
    number = strtol(replica, &end, 10);
    if (*end != '\0' || number < 0 || number >= STRAIT_RUN_REPLICAS) return line_lacks("a replica");
    out->replica = (int)number;
    (void)snprintf(out->run_path, sizeof out->run_path, "%s", line);
    STRAIT_TRY(parse_run_id(id, out->run_id));
    return strait_fingerprint_parse(key, &out->coordinator);
}

/* The answer of a stage: its key and where it listens. */
strait_err strait_startup_parse_answer(const char *line, strait_fingerprint *key,
                                       char address[STRAIT_ADDRESS_MAX]) {
    char text[STRAIT_FINGERPRINT_TEXT];
    if (!take_token(&line, text, sizeof text) || !take_token(&line, address, STRAIT_ADDRESS_MAX))
        return line_lacks("key and address");
    return strait_fingerprint_parse(text, key);
}

/* Byte by byte, because what follows the line belongs to another reader. The timeout covers a
 * remote shell that asks for a password and would block forever. */
strait_err strait_startup_read_line(int fd, char out[STRAIT_STARTUP_LINE]) {
    for (size_t n = 0; n < STRAIT_STARTUP_LINE;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        const int polled = poll(&ready, 1, READ_MS);
        const ssize_t got = polled == 1 ? read(fd, out + n, 1) : -1;
        if (polled != 0 && got < 0 && errno == EINTR) continue;
        if (got != 1) return STRAIT_FAIL(STRAIT_ECLOSED, "a stage ended before it was connected");
        if (out[n] == '\n') {
            out[n] = '\0';
            return STRAIT_OK;
        }
        n++;
    }
    return line_lacks("an end");
}

/* A pipe may accept part of a line when it is nearly full. */
strait_err strait_startup_write_line(int fd, const char *line) {
    for (size_t left = strlen(line); left > 0;) {
        const ssize_t n = write(fd, line, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "the other side of a startup line has gone");
        line += n;
        left -= (size_t)n;
    }
    return STRAIT_OK;
}

/* The text is truncated nowhere: a shortened address or command would fail later in a less obvious
 * way. */
strait_err strait_startup_expand(const char *text, int stage, char *out, size_t capacity) {
    static const char mark[] = "{stage}";
    size_t n = 0;
    while (*text != '\0' && n + 1 < capacity) {
        if (strncmp(text, mark, sizeof mark - 1) == 0) {
            const int digits = snprintf(out + n, capacity - n, "%d", stage);
            n += (size_t)digits;
            text += sizeof mark - 1;
        } else {
            out[n++] = *text++;
        }
    }
    if (*text != '\0' || n >= capacity)
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages.address or stages.launch is too long");
    out[n] = '\0';
    return STRAIT_OK;
}
