/* startup.h - the lines that a coordinator and a stage it has just started exchange over two file
 * descriptors.
 *
 * The coordinator writes one line: where and who it is. The stage makes a key of its own, which
 * never leaves it, and writes one line back: its fingerprint and the address where its neighbour
 * can dial it. A second line lets it dial the coordinator. From then on everything goes over the
 * mesh. */
#pragma once

#include "base/file.h"
#include "config/run.h"
#include "net/mesh/mesh.h"

enum {
    STRAIT_STARTUP_LINE = 8192
};

typedef struct strait_startup {
    int stage, replica;
    unsigned char run_id[STRAIT_RUN_BYTES];
    strait_fingerprint coordinator;
    char address[STRAIT_ADDRESS_MAX]; // the coordinator's
    char scheme[8];                   // "tls", "inproc" or "mpi"
    char run_path[STRAIT_PATH_MAX];   // of the run file with every option resolved
} strait_startup;

/* The first line and its answer, with the newline. STRAIT_EPROTO: too long, or a field is missing
 * or malformed. */
strait_err strait_startup_format(const strait_startup *start, char out[STRAIT_STARTUP_LINE]);
strait_err strait_startup_parse(const char *line, strait_startup *out);
strait_err strait_startup_parse_answer(const char *line, strait_fingerprint *key,
                                       char address[STRAIT_ADDRESS_MAX]);

/* Reads one line without its newline, byte by byte so that nothing behind it is consumed.
 * STRAIT_ECLOSED when none arrives within half a minute. */
strait_err strait_startup_read_line(int fd, char out[STRAIT_STARTUP_LINE]);
/* Writes all of `line`. STRAIT_ECLOSED when nobody reads it. */
strait_err strait_startup_write_line(int fd, const char *line);

/* Copies `text` with every "{stage}" replaced by the number of the stage. STRAIT_ECONFIG: too
 * long. */
strait_err strait_startup_expand(const char *text, int stage, char *out, size_t capacity);
