/* Parses any bytes as the two JSON files of a Hugging Face folder: a config and an index. Accepted
 * ones must keep what their readers rely on. */
#include "base/alloc.h"
#include "convert/hf_config.h"
#include "convert/hf_folder.h"
#include "convert/hf_names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A shape that was accepted lists its tensors, all with a size. */
static void check_config(const char *text, size_t size) {
    strait_hf_config config;
    strait_hf_tensor *tensors = NULL;
    int n = 0;
    if (strait_hf_config_parse(text, size, &config) != STRAIT_OK) return;
    if (strait_shape_check(&config.shape) != STRAIT_OK) abort();
    if (strait_hf_names_list(&config.shape, &tensors, &n) != STRAIT_OK) return;
    for (int i = 0; i < n; i++) {
        int64_t values = 0;
        for (int p = 0; p < tensors[i].n_parts; p++)
            values += tensors[i].parts[p].rows * tensors[i].parts[p].cols;
        if (values < 1 || values != tensors[i].rows * tensors[i].cols) abort();
    }
    strait_alloc_free(tensors);
}

/* No accepted name leaves the folder. */
static void check_index(const char *text, size_t size) {
    struct strait_hf_index *index = NULL;
    if (strait_hf_index_parse(text, size, &index) != STRAIT_OK) return;
    for (int i = 0; i < strait_hf_index_files(index); i++)
        if (strchr(strait_hf_index_file(index, i), '/') != NULL) abort();
    strait_hf_index_close(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_config((const char *)data, size);
    check_index((const char *)data, size);
    return 0;
}
