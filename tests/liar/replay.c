/* replay.c - gives the fuzz target of messages (tests/fuzz/messages.c) its seeds, the files named
 * as arguments, and some variants of each: a short case of it for every build. */
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    BYTES_MAX = 4096,
    N_VARIANTS = 20
};

static unsigned draw(unsigned n) {
    static unsigned state = 1;
    state = state * 1103515245u + 12345u;
    return state / 65536u % n;
}

static int try_seed(const char *path) {
    unsigned char data[BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t n = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    if (n == 0) return 0;
    for (int i = 0; i <= N_VARIANTS; i++) {
        (void)LLVMFuzzerTestOneInput(data, n); // aborts on a failure
        for (int k = 0; k < 8; k++)
            data[draw((unsigned)n)] = (unsigned char)draw(256);
    }
    return 1;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!try_seed(argv[i])) {
            fprintf(stderr, "replay: '%s' cannot be read, or is empty\n", argv[i]);
            return 2;
        }
    return argc > 1 ? 0 : 2;
}
