/* Parses any bytes as a safetensors file: they are rejected with a one-line error, or every byte of
 * the tensors can be read. */
#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct strait_safetensors *file) {
    size_t total = 0;
    for (int i = 0; i < strait_safetensors_count(file); i++) {
        const strait_safetensor *t = strait_safetensors_at(file, i);
        unsigned sum = 0;
        for (size_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        total += t->bytes + (sum & 0);
        if (strait_safetensors_find(file, t->name) != t) abort();
        float into[16];
        (void)strait_safetensors_read(file, t->name, (strait_tensor){into, STRAIT_F32, 4, 4});
    }
    (void)strait_safetensors_metadata(file, "format");
    (void)total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct strait_safetensors *file = NULL;
    const strait_err err = strait_safetensors_parse("f", data, size, &file);
    if (err == STRAIT_OK)
        read_all(file);
    else if (err != STRAIT_EDATA || strchr(strait_err_detail(), '\n') != NULL)
        abort();
    strait_safetensors_close(&file);
    return 0;
}
