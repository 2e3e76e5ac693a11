/* Decodes any bytes as a boundary message: the result is finite and nothing is read past the end.
 * The first byte of the input selects codec and direction; the rest is the wire, repeated as
 * needed. The specs below are followed by every codec and variant of the registry with its
 * defaults. */
#include "codec/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    ROWS = 5,
    COLS = 32,
    VOCAB = 9
};

static const strait_codec_spec specs[] = {
    {.name = "none", .variant = "fp32"},
    {.name = "none", .variant = "bf16"},
    {.name = "int8"},
    {.name = "int4", .tile = 16},
    {.name = "topk", .keep = 3},
    {.name = "lowrank", .rank = 2, .bits = 8},
    {.name = "lowrank", .rank = 3},
    {.name = "subspace", .keep = 7, .bits = 4},
    {.name = "subspace", .keep = 7},
    {.name = "resbm", .keep = 5, .hidden = 6, .bits = 8},
    {.name = "resbm", .keep = 5, .hidden = 6, .bits = 32},
    {.name = "strait", .variant = "tied", .keep = 6, .hidden = 8, .table_width = 4},
    {.name = "strait", .variant = "tied", .keep = 6, .hidden = 8, .table_width = 4, .bits = 16},
    {.name = "strait", .variant = "context", .keep = 7, .hidden = 8, .encoder = 8, .context = 2},
    {.name = "strait", .variant = "context", .keep = 6, .hidden = 8, .encoder = 8, .bits = 16},
    {.name = "subspace", .variant = "factored", .keep = 7, .bits = 8},
    {.name = "resbm", .variant = "b", .keep = 5, .bits = 4},
};

enum {
    N_LISTED = sizeof specs / sizeof specs[0],
    SPECS_MAX = 96
};

static struct strait_backend *be;
static struct strait_stream stream;
static struct strait_codec *senders[SPECS_MAX], *receivers[SPECS_MAX];
static int n_specs;

static int open_pair(strait_codec_spec spec) {
    if (n_specs == SPECS_MAX) return 1;
    struct strait_codec **sender = &senders[n_specs], **receiver = &receivers[n_specs];
    spec.rows = ROWS;
    spec.cols = COLS;
    spec.vocab = VOCAB;
    spec.n_slots = spec.n_boundaries = 1;
    n_specs++;
    return strait_codec_open(&spec, STRAIT_SENDER, be, sender) != STRAIT_OK ||
           strait_codec_open(&spec, STRAIT_RECEIVER, be, receiver) != STRAIT_OK ||
           strait_codec_join(NULL, *sender) != STRAIT_OK ||
           strait_codec_join(*receiver, NULL) != STRAIT_OK;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    if (strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &be) != STRAIT_OK)
        return 1;
    if (be->ops->stream_open(be, &stream) != STRAIT_OK) return 1;
    for (int i = 0; i < N_LISTED; i++)
        if (open_pair(specs[i])) return 1;
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        static const char *const none[] = {"", NULL};
        const char *const *variants = strait_codecs[i]->variants;
        for (variants = variants != NULL ? variants : none; *variants != NULL; variants++) {
            strait_codec_spec spec = {.keep = 5, .hidden = 6, .table_width = 4, .rank = 2};
            (void)snprintf(spec.name, sizeof spec.name, "%s", strait_codecs[i]->name);
            (void)snprintf(spec.variant, sizeof spec.variant, "%s", *variants);
            if (open_pair(spec)) return 1;
        }
    }
    return 0;
}

/* Allocates the wire exactly, so that a sanitizer detects the first byte past it. */
static strait_tensor make_wire(size_t bytes, const unsigned char *data, size_t size) {
    unsigned char *wire = malloc(bytes);
    if (wire == NULL) abort();
    for (size_t i = 0; i < bytes; i++)
        wire[i] = data[i % size];
    return (strait_tensor){wire, STRAIT_I8, 1, (int64_t)bytes};
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static float values[ROWS * COLS];
    static int32_t ids[ROWS] = {0, 3, 8, 3, 1};
    if (size < 2) return 0;
    const int which = data[0] / 2 % n_specs;
    const strait_direction direction = data[0] % 2 ? STRAIT_BACKWARD : STRAIT_FORWARD;
    const strait_crossing at = {.stream = &stream, .tokens = {ids, STRAIT_I32, ROWS, 1}};
    const strait_codec_spec *spec = &senders[which]->spec;
    const strait_tensor x = {values, STRAIT_F32, ROWS, strait_codec_width(spec)};
    const size_t bytes = strait_codec_wire_bytes(spec, direction);
    const strait_tensor wire = make_wire(bytes, data + 1, size - 1);
    const strait_err err = direction == STRAIT_FORWARD
                               ? strait_codec_act_unpack(receivers[which], &at, x, wire)
                               : strait_codec_grad_unpack(senders[which], &at, x, wire);
    for (int64_t i = 0; err == STRAIT_OK && i < x.rows * x.cols; i++)
        if (!isfinite(values[i])) abort();
    free(wire.data);
    return 0;
}
