/* run.c - whatever is in a run file, it is refused in one line or saved and loaded to the same. */
#include "config/run.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static strait_run run, again;
static char text[1 << 16];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&run, 0, sizeof run);
    memset(&again, 0, sizeof again);
    const strait_err err = strait_run_parse("f", (const char *)data, size, NULL, 0, &run);
    if (err != STRAIT_OK) {
        if (err != STRAIT_ECONFIG || strchr(strait_err_detail(), '\n') != NULL) abort();
        return 0;
    }
    const size_t bytes = strait_options_render(strait_run_options(), &run, text, sizeof text);
    if (bytes >= sizeof text) abort();
    if (strait_run_parse("f", text, bytes, NULL, 0, &again) != STRAIT_OK) abort();
    if (memcmp(&run, &again, sizeof run) != 0) abort();
    return 0;
}
