/* serve.h - the life of a stage that is not the conductor's own: in a process or a thread.
 *
 * Who started it hands it two file descriptors. It reads one line, where and who the conductor is;
 * it makes a key of its own, which never leaves it, and writes one line back: its fingerprint and
 * the address where its neighbour can dial it. A second line lets it dial the conductor. From then
 * on everything goes over the mesh. */
#pragma once

#include "net/inproc/mailbox.h"
#include "stage/commands.h"

enum {
    STRAIT_SERVICE_LINE = 8192
};

typedef struct strait_startup {
    int stage;
    unsigned char run_id[STRAIT_RUN_BYTES];
    strait_fingerprint coordinator;
    char address[STRAIT_ADDRESS_MAX];   // the conductor's
    char scheme[8];                     // "tls" or "inproc"
    char run_path[STRAIT_COMMAND_TEXT]; // of the run file, resolved
} strait_startup;

/* The two lines, with their ends. */
strait_err strait_service_format_start(const strait_startup *start, char out[STRAIT_SERVICE_LINE]);
strait_err strait_service_parse_start(const char *line, strait_startup *out);
strait_err strait_service_parse_answer(const char *line, strait_fingerprint *key,
                                       char address[STRAIT_ADDRESS_MAX]);

/* One line, read byte by byte so that nothing after it is taken; without its end. STRAIT_ECLOSED
 * when none comes within half a minute. */
strait_err strait_service_read_line(int fd, char out[STRAIT_SERVICE_LINE]);
/* All of a line, which has its end. STRAIT_ECLOSED when nobody reads it. */
strait_err strait_service_write_line(int fd, const char *line);

/* Serves until told to leave: STRAIT_OK. Any error has been told to the conductor, if it could be.
 * `hub` is where inproc meshes meet; NULL otherwise. */
strait_err strait_service_run(int in, int out, struct strait_inproc_network *hub);

/* Copies `text` with every "{stage}" as the number of the stage. STRAIT_ECONFIG: too long. */
strait_err strait_startup_expand(const char *text, int stage, char *out, size_t capacity);
