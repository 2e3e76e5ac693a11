/* Fuzzes requests of an operator: one line of JSON that a running host reads from its local socket.
 * A request that is accepted must mean the same after it is formatted again. */
#include "swarm/host/access/operator.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static int is_same(const strait_operator_request *a, const strait_operator_request *b) {
    return a->kind == b->kind && strcmp(a->target, b->target) == 0 && a->seconds == b->seconds &&
           a->uses == b->uses && a->id == b->id;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    strait_operator_request request, again;
    char *line = malloc(size + 1); // exactly as long as the text, so that a read beyond it is found
    if (line == NULL) return 0;
    memcpy(line, data, size);
    line[size] = '\0';
    if (strait_operator_parse(line, &request) == STRAIT_OK) {
        char *text = strait_operator_format(&request);
        if (text == NULL || strchr(text, '\n') != NULL) abort();
        if (strait_operator_parse(text, &again) != STRAIT_OK || !is_same(&request, &again)) abort();
        free(text);
    }
    free(line);
    return 0;
}
