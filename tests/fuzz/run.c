/* Parses any bytes as a run file: they are rejected with a one-line error, or the run is the same
 * after saving and loading it. */
#include "config/run.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static strait_run run, again;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&run, 0, sizeof run);
    memset(&again, 0, sizeof again);
    const strait_err err = strait_run_init_text("f", (const char *)data, size, NULL, 0, &run);
    if (err != STRAIT_OK) {
        if (err != STRAIT_ECONFIG || strchr(strait_err_detail(), '\n') != NULL) abort();
        return 0;
    }
    char *text = NULL;
    size_t bytes = 0;
    if (strait_run_render(&run, &text, &bytes) != STRAIT_OK) abort();
    if (strait_run_init_text("f", text, bytes, NULL, 0, &again) != STRAIT_OK) abort();
    if (memcmp(&run, &again, sizeof run) != 0) abort();
    strait_alloc_free(text);
    return 0;
}
