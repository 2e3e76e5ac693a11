/* weights.c - prints the name and a hash of every tensor in the newest checkpoint of a run, so that
 * runs with different numbers of stages can be compared: weights and optimizer state. */
#include "base/digest/hash.h"
#include "store/checkpoint.h"

#include <stdio.h>

static void print_file(const struct strait_safetensors *file) {
    for (int i = 0; i < strait_safetensors_count(file); i++) {
        const strait_safetensor *tensor = strait_safetensors_at(file, i);
        char hash[STRAIT_HASH_TEXT];
        strait_hash_text(tensor->data, tensor->bytes, hash);
        printf("%s %s\n", tensor->name, hash);
    }
}

int main(int argc, char **argv) {
    struct strait_checkpoint *checkpoint = NULL;
    if (argc != 2) return 2;
    if (strait_checkpoint_open(argv[1], STRAIT_CHECKPOINT_NEWEST, &checkpoint) != STRAIT_OK) {
        fprintf(stderr, "weights: %s\n", strait_err_detail());
        return 3;
    }
    const struct strait_safetensors *file;
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, NULL)) != NULL; i++)
        print_file(file);
    strait_checkpoint_close(&checkpoint);
    return 0;
}
