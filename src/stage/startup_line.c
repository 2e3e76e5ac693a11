/* serve_line.c - the lines that a conductor and a stage exchange before there is a mesh. */
#include "stage/service.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEET_MS = 30000
};

static strait_err fail_line(const char *what) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a stage was started with a line that lacks %s", what);
}

strait_err strait_service_format_start(const strait_startup *start, char out[STRAIT_SERVICE_LINE]) {
    char key[STRAIT_FINGERPRINT_TEXT];
    char id[2 * STRAIT_RUN_BYTES + 1];
    strait_fingerprint_text(&start->coordinator, key);
    for (size_t i = 0; i < STRAIT_RUN_BYTES; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", start->run_id[i]);
    const int n = snprintf(out, STRAIT_SERVICE_LINE, "%d %s %s %s %s %s\n", start->stage,
                           start->scheme, id, key, start->address, start->run_path);
    if (n < 0 || n >= STRAIT_SERVICE_LINE) return fail_line("room");
    return STRAIT_OK;
}

/* Takes the next word of a line, up to a space or the end; 0 when there is none or no room. */
static int take_word(const char **line, char *out, size_t capacity) {
    const size_t n = strcspn(*line, " ");
    if (n == 0 || n >= capacity) return 0;
    memcpy(out, *line, n);
    out[n] = '\0';
    *line += n + ((*line)[n] == ' ');
    return 1;
}

static strait_err parse_run_id(const char *text, unsigned char out[STRAIT_RUN_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < STRAIT_RUN_BYTES; i++) {
        const char *high = text[2 * i] != '\0' ? strchr(digits, text[2 * i]) : NULL;
        const char *low = high != NULL && text[2 * i + 1] != '\0' ? strchr(digits, text[2 * i + 1])
                                                                  : NULL;
        if (low == NULL) return fail_line("the run's id");
        out[i] = (unsigned char)((high - digits) * 16 + (low - digits));
    }
    return STRAIT_OK;
}

strait_err strait_service_parse_start(const char *line, strait_startup *out) {
    char stage[16];
    char key[STRAIT_FINGERPRINT_TEXT];
    char id[2 * STRAIT_RUN_BYTES + 1];
    char *end = NULL;
    *out = (strait_startup){0};
    if (!take_word(&line, stage, sizeof stage) ||
        !take_word(&line, out->scheme, sizeof out->scheme) || !take_word(&line, id, sizeof id) ||
        !take_word(&line, key, sizeof key) ||
        !take_word(&line, out->address, sizeof out->address) || *line == '\0')
        return fail_line("a field");
    const long number = strtol(stage, &end, 10);
    if (*end != '\0' || number < 0 || number >= STRAIT_RUN_STAGES) return fail_line("a stage");
    out->stage = (int)number;
    (void)snprintf(out->run_path, sizeof out->run_path, "%s", line);
    STRAIT_TRY(parse_run_id(id, out->run_id));
    return strait_fingerprint_parse(key, &out->coordinator);
}

strait_err strait_service_parse_answer(const char *line, strait_fingerprint *key,
                                       char address[STRAIT_ADDRESS_MAX]) {
    char text[STRAIT_FINGERPRINT_TEXT];
    if (!take_word(&line, text, sizeof text) || !take_word(&line, address, STRAIT_ADDRESS_MAX))
        return fail_line("key and address");
    return strait_fingerprint_parse(text, key);
}

strait_err strait_service_read_line(int fd, char out[STRAIT_SERVICE_LINE]) {
    for (size_t n = 0; n < STRAIT_SERVICE_LINE;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        const int polled = poll(&ready, 1, MEET_MS);
        const ssize_t got = polled == 1 ? read(fd, out + n, 1) : -1;
        if (polled != 0 && got < 0 && errno == EINTR) continue;
        if (got != 1) return STRAIT_FAIL(STRAIT_ECLOSED, "a stage ended before it had begun");
        if (out[n] == '\n') {
            out[n] = '\0';
            return STRAIT_OK;
        }
        n++;
    }
    return fail_line("an end");
}

strait_err strait_service_write_line(int fd, const char *line) {
    for (size_t left = strlen(line); left > 0;) {
        const ssize_t n = write(fd, line, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "the other side has gone before it began");
        line += n;
        left -= (size_t)n;
    }
    return STRAIT_OK;
}

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
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages: an address or command is too long");
    out[n] = '\0';
    return STRAIT_OK;
}
