/* download.c - metrics.jsonl for spreadsheets and scripts, without ever holding it in memory. */
#include "base/alloc.h"
#include "monitor/server.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_BYTES = 1 << 16,
    BLOCK_BYTES = 1 << 14
};

/* The response closes the descriptor. The length is fixed now: a running run goes on writing. */
struct MHD_Response *strait_download_jsonl(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        struct MHD_Response *response = MHD_create_response_from_fd64((uint64_t)info.st_size, fd);
        if (response != NULL) return response;
    }
    (void)close(fd);
    return NULL;
}

/* The columns: keys of metrics.jsonl that have one value per line. */
static const char *const columns[] = {"step",
                                      "loss",
                                      "valid_loss",
                                      "learning_rate",
                                      "grad_norm",
                                      "tokens",
                                      "time",
                                      "tokens_per_s",
                                      "forward_bytes_per_token",
                                      "backward_bytes_per_token",
                                      "ratio_forward",
                                      "ratio_backward",
                                      "bubble",
                                      "limit",
                                      "seconds"};

enum {
    N_COLUMNS = sizeof columns / sizeof *columns
};

struct csv {
    FILE *file;
    char line[LINE_BYTES];
    char row[4096];
    size_t n_row, n_sent;
};

static void add_cell(struct csv *c, int column, const char *text) {
    const int n = snprintf(c->row + c->n_row, sizeof c->row - c->n_row, "%s%s",
                           column > 0 ? "," : "", text);
    if (n > 0 && c->n_row + (size_t)n < sizeof c->row) c->n_row += (size_t)n;
}

/* Numbers keep their spelling apart from trailing zeros; no text of the file needs quotes. */
static void add_value(struct csv *c, int column, const json_t *value) {
    char text[64] = "";
    if (json_is_string(value))
        (void)snprintf(text, sizeof text, "%.60s", json_string_value(value));
    else if (json_is_integer(value))
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, sizeof text, "%.13g", json_real_value(value));
    add_cell(c, column, text);
}

static int next_row(struct csv *c) {
    if (fgets(c->line, sizeof c->line, c->file) == NULL) return 0;
    json_t *line = json_loads(c->line, 0, NULL);
    c->n_row = c->n_sent = 0;
    for (int i = 0; i < N_COLUMNS && line != NULL; i++)
        add_value(c, i, json_object_get(line, columns[i]));
    if (line != NULL) c->row[c->n_row++] = '\n';
    json_decref(line);
    return 1;
}

static ssize_t read_csv(void *user, uint64_t position, char *out, size_t capacity) {
    struct csv *c = user;
    size_t used = 0;
    (void)position;
    while (used < capacity) {
        size_t n = c->n_row - c->n_sent;
        if (n == 0) {
            if (!next_row(c)) break;
            continue;
        }
        if (n > capacity - used) n = capacity - used;
        memcpy(out + used, c->row + c->n_sent, n);
        c->n_sent += n;
        used += n;
    }
    return used > 0 ? (ssize_t)used : MHD_CONTENT_READER_END_OF_STREAM;
}

static void close_csv(void *user) {
    struct csv *c = user;
    (void)fclose(c->file);
    strait_alloc_free(c);
}

struct MHD_Response *strait_download_csv(const char *path) {
    void *memory = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) return NULL;
    if (strait_alloc(1, sizeof(struct csv), "download", &memory) != STRAIT_OK) {
        (void)fclose(file);
        return NULL;
    }
    struct csv *c = memory;
    c->file = file;
    for (int i = 0; i < N_COLUMNS; i++)
        add_cell(c, i, columns[i]);
    c->row[c->n_row++] = '\n';
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                                      read_csv, c, close_csv);
    if (response == NULL) close_csv(c);
    return response;
}
