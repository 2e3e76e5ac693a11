/* gguf.c - GGUF files: the layout of the format byte by byte, blocks of Q8_0, and the order of rows
 * in an exported Llama. tools/check-gguf-export compares with llama.cpp itself. */
#include <strait/convert.h>

#include "check.h"
#include "convert/gguf/format.h"
#include "convert/hf_folder.h"
#include "scratch.h"

#include <math.h>

enum {
    MAX_BYTES = 1 << 20
};

static size_t read_all(const char *path, unsigned char *out) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(out, 1, MAX_BYTES, file);
    (void)fclose(file);
    return n;
}

/* One key, one vector and one matrix, written out by hand. */
static void file_has_the_layout_of_the_format(void **state) {
    (void)state;
    static const unsigned char expected[] = {
        'G', 'G', 'U', 'F', 3, 0, 0, 0, 2,   0,   0,   0, 0,  0, 0, 0, 1, 0, 0, 0, 0,
        0,   0,   0,                                                                  // header
        3,   0,   0,   0,   0, 0, 0, 0, 'a', '.', 'b', 4, 0,  0, 0, 7, 0, 0, 0,       // key
        1,   0,   0,   0,   0, 0, 0, 0, 'v', 1,   0,   0, 0,  3, 0, 0, 0, 0, 0, 0, 0, // vector
        0,   0,   0,   0,   0, 0, 0, 0, 0,   0,   0,   0,                             // f32, at 0
        1,   0,   0,   0,   0, 0, 0, 0, 'm', 2,   0,   0, 0,  2, 0, 0, 0, 0, 0, 0, 0, // matrix
        2,   0,   0,   0,   0, 0, 0, 0, 1,   0,   0,   0, 32, 0, 0, 0, 0, 0, 0, 0,    // f16
    };
    static unsigned char bytes[MAX_BYTES];
    struct strait_gguf gguf = {0};
    scratch dir = scratch_open();
    float vector[] = {1, 2, 3}, matrix[] = {1, 0.5f, -2, 0};
    CHECK_OK(strait_gguf_u32(&gguf, "a.b", 7));
    CHECK_OK(strait_gguf_tensor(&gguf, "v", STRAIT_GGUF_F32, 1, 3));
    CHECK_OK(strait_gguf_tensor(&gguf, "m", STRAIT_GGUF_F16, 2, 2));
    FILE *file = fopen(scratch_at(&dir, "x"), "wb");
    assert_non_null(file);
    strait_gguf_write_header(&gguf, file);
    strait_gguf_write_tensor(file, STRAIT_GGUF_F32, vector, 3);
    strait_gguf_write_tensor(file, STRAIT_GGUF_F16, matrix, 4);
    (void)fclose(file);
    const size_t n = read_all(scratch_at(&dir, "x"), bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
    const size_t data = (sizeof expected + 31) / 32 * 32;
    assert_int_equal(n, data + 64); // both tensors fill one unit of 32 bytes
    static const unsigned char halves[] = {0, 0x3c, 0, 0x38, 0, 0xc0, 0, 0};
    assert_memory_equal(bytes + data + 32, halves, sizeof halves);
    strait_gguf_fini(&gguf);
    scratch_close(&dir);
}

static void blocks_of_q8_0_restore_to_half_a_step(void **state) {
    (void)state;
    static unsigned char bytes[MAX_BYTES];
    scratch dir = scratch_open();
    float values[64], kept[64];
    for (int i = 0; i < 64; i++)
        kept[i] = values[i] = i < 32 ? sinf((float)i) : 0.0f;
    FILE *file = fopen(scratch_at(&dir, "x"), "wb");
    assert_non_null(file);
    strait_gguf_write_tensor(file, STRAIT_GGUF_Q8_0, values, 64);
    (void)fclose(file);
    assert_int_equal(read_all(scratch_at(&dir, "x"), bytes), 96); // 2 x 34, padded
    const double step = 1.0 / 127;
    for (int i = 0; i < 32; i++)
        CHECK_NEAR((signed char)bytes[2 + i] * step, (double)kept[i], 0.51 * step);
    for (int i = 0; i < 34; i++)
        assert_int_equal(bytes[34 + i], 0);
    scratch_close(&dir);
}

/* Where a text of the header is, and the bytes after it. */
static const unsigned char *find(const unsigned char *bytes, size_t n, const char *text) {
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(bytes + i, text, length) == 0) return bytes + i + length;
    fail_msg("the file has no %s", text);
    return NULL;
}

static uint64_t number_at(const unsigned char *at) {
    uint64_t value = 0;
    memcpy(&value, at, sizeof value);
    return value;
}

/* llama.cpp rotates neighbours: row i of a head becomes row 2 i, row i + half row 2 i + 1. */
static void rows_of_a_llama_are_interleaved(void **state) {
    (void)state;
    enum {
        HEAD = 8, // features of a head of the golden model
        WIDTH = 32
    };
    static unsigned char bytes[MAX_BYTES];
    scratch dir = scratch_open();
    struct strait_hf_folder *folder = NULL;
    char command[512];
    const strait_export_params f32 = {.dtype = "f32"};
    CHECK_OK(strait_import_hf("tests/golden/hf/llama2", scratch_at(&dir, "run"), NULL, NULL, NULL));
    CHECK_FAILS(
        strait_export_gguf(scratch_at(&dir, "run"), scratch_at(&dir, "x.gguf"), &f32, NULL, NULL),
        STRAIT_EDATA, "tokenizer.json");
    (void)snprintf(command, sizeof command, "cp tests/golden/hf/qwen2/tokenizer.json %s/run",
                   dir.path);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a fixed command
    CHECK_OK(
        strait_export_gguf(scratch_at(&dir, "run"), scratch_at(&dir, "x.gguf"), &f32, NULL, NULL));
    const size_t n = read_all(scratch_at(&dir, "x.gguf"), bytes);
    CHECK_OK(strait_hf_folder_open("tests/golden/hf/llama2", &folder));
    const unsigned char *info = find(bytes, n, "blk.1.attn_q.weight");
    /* Two descriptions end the header: the rest of this vector's, and that of output.weight. */
    const unsigned char *norm = find(bytes, n, "output_norm.weight");
    const size_t end = (size_t)(norm - bytes) + 24 + 8 + strlen("output.weight") + 32;
    const size_t data = (end + 31) / 32 * 32;
    const float *ours = (const float *)(const void *)(bytes + data + number_at(info + 24));
    const strait_safetensor *q = strait_hf_folder_find(folder,
                                                       "model.layers.1.self_attn.q_proj.weight");
    for (int row = 0; row < WIDTH; row++) {
        const int i = row % HEAD, to = row - i + (i < HEAD / 2 ? 2 * i : 2 * (i - HEAD / 2) + 1);
        assert_memory_equal(ours + to * WIDTH, q->data + (size_t)(row * WIDTH) * sizeof(float),
                            WIDTH * sizeof(float));
    }
    strait_hf_folder_close(&folder);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_has_the_layout_of_the_format),
        cmocka_unit_test(blocks_of_q8_0_restore_to_half_a_step),
        cmocka_unit_test(rows_of_a_llama_are_interleaved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
