#include "store/safetensors.h"

#include "base/alloc.h"
#include "check.h"
#include "scratch.h"

#include <stdio.h>

/* A file in memory from a header and the bytes after it. */
typedef struct image {
    unsigned char bytes[4096];
    size_t n;
} image;

static image make(const char *header, size_t n_data) {
    image m = {{0}, 8};
    const size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        m.bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(m.bytes + 8, header, length);
    m.n = 8 + length + n_data;
    for (size_t i = 0; i < n_data; i++)
        m.bytes[8 + length + i] = (unsigned char)i;
    return m;
}

static strait_err parse(const char *header, size_t n_data) {
    const image m = make(header, n_data);
    struct strait_safetensors *file = NULL;
    const strait_err err = strait_safetensors_parse("w.safetensors", m.bytes, m.n, &file);
    strait_safetensors_close(&file);
    return err;
}

#define F32(shape, from, to) \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

#define REFUSES(header, n_data, words) CHECK_FAILS(parse(header, n_data), STRAIT_EDATA, words)

static void test_refuses_broken_headers(void **state) {
    (void)state;
    CHECK_OK(parse("{}", 0));
    CHECK_OK(parse("{\"a\":" F32("[2,3]", 0, 24) "}", 24));
    REFUSES("", 0, "w.safetensors: not a safetensors file");
    REFUSES("[1]", 0, "w.safetensors: not a safetensors file");
    REFUSES("{\"a\":", 0, "w.safetensors: header: line 1");
    REFUSES("{\"a\":{},\"a\":{}}", 0, "duplicate");
    REFUSES("{\"a\":3}", 0, "w.safetensors: tensor \"a\": its description is not a JSON object");
    REFUSES("{\"a\":{}}", 0, "tensor \"a\": \"dtype\" is missing");
    REFUSES("{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor \"a\": \"shape\" is missing");
    REFUSES("{\"a\":{\"dtype\":\"F31\",\"shape\":[]}}", 0, "dtype \"F31\" is not supported");
    REFUSES("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "\"data_offsets\" is missing");
    REFUSES("{\"a\\n\":" F32("[1]", 0, 4) "}", 4, "name contains control characters");
    REFUSES("{\"__metadata__\":3}", 0, "__metadata__ is not an object");
    REFUSES("{\"__metadata__\":{\"k\":3}}", 0, "__metadata__: \"k\" is not a string");
}

static void test_refuses_broken_shapes_and_places(void **state) {
    (void)state;
    REFUSES("{\"a\":" F32("[1.5]", 0, 4) "}", 4, "a dimension is not a non-negative integer");
    REFUSES("{\"a\":" F32("[-1]", 0, 4) "}", 4, "a dimension is not a non-negative integer");
    REFUSES("{\"a\":" F32("[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "9 dimensions, more than the 8");
    REFUSES("{\"a\":" F32("[4294967296,4294967296]", 0, 4) "}", 4, "is too large");
    REFUSES("{\"a\":" F32("[2]", 0, 4) "}", 4, "4 bytes of data, but its shape and type need 8");
    REFUSES("{\"a\":" F32("[2]", 0, 8) "}", 4, "bytes 0 to 8 are outside the 4 bytes of data");
    REFUSES("{\"a\":" F32("[1]", 4, 0) "}", 4, "bytes 4 to 0 are outside");
    REFUSES("{\"a\":" F32("[1]", -4, 0) "}", 4, "bytes -4 to 0 are outside");
    REFUSES("{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
            "\"data_offsets\" is not a pair of integers");
    REFUSES("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 2, 6) "}", 6,
            "tensor \"b\": overlaps the previous tensor");
    REFUSES("{\"a\":" F32("[1]", 0, 4) ",\"b\":" F32("[1]", 6, 10) "}", 10,
            "tensor \"b\": the bytes before it belong to no tensor");
    REFUSES("{\"a\":" F32("[1]", 0, 4) "}", 7, "3 bytes after the last tensor");
}

static void test_refuses_a_header_longer_than_the_file(void **state) {
    (void)state;
    struct strait_safetensors *file = NULL;
    image m = make("{}", 0);
    m.bytes[0] = 3;
    CHECK_FAILS(strait_safetensors_parse("w", m.bytes, m.n, &file), STRAIT_EDATA,
                "w: a header of 3 bytes does not fit");
    m.bytes[7] = 255;
    CHECK_FAILS(strait_safetensors_parse("w", m.bytes, m.n, &file), STRAIT_EDATA,
                "does not fit: not a safetensors file, or truncated");
    CHECK_FAILS(strait_safetensors_parse("w", m.bytes, 7, &file), STRAIT_EDATA,
                "w: 7 bytes are too few for a safetensors file");
    CHECK(file == NULL);
}

static void test_reads_other_types_scalars_and_empty_tensors(void **state) {
    (void)state;
    const image m = make("{\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]},"
                         "\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[8,8]},"
                         "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}      ",
                         14);
    struct strait_safetensors *file = NULL;
    CHECK_OK(strait_safetensors_parse("w", m.bytes, m.n, &file));
    assert_int_equal(strait_safetensors_count(file), 3);
    assert_string_equal(strait_safetensors_at(file, 0)->name, "e");
    const strait_safetensor *s = strait_safetensors_find(file, "s");
    CHECK(s != NULL && s->n_dims == 0 && s->bytes == 8 && s->data[7] == 7);
    assert_string_equal(strait_safetensors_find(file, "h")->dtype, "F16");
    CHECK(strait_safetensors_find(file, "x") == NULL);
    CHECK(strait_safetensors_metadata(file, "format") == NULL);
    strait_safetensors_close(&file);
    strait_safetensors_close(&file);
}

static float weights[6] = {1, -2, 3.5F, 0, 1e-30F, 7};
static int8_t codes[3] = {-1, 2, 127};

static const strait_safetensors_item items[] = {
    {"z.codes", {codes, STRAIT_I8, 1, 3}, 1},
    {"a.matrix \"q\"", {weights, STRAIT_F32, 2, 3}, 0},
    {"gain", {weights, STRAIT_F32, 1, 5}, 1},
};
static const strait_safetensors_pair metadata[] = {{"format", "pt"}, {"step", "12"}};
static const strait_safetensors_content content = {
    .items = items, .n_items = 3, .metadata = metadata, .n_metadata = 2};

static void test_reads_back_what_it_wrote(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "w.safetensors");
    CHECK_OK(strait_safetensors_write(path, &content));
    struct strait_safetensors *file = NULL;
    CHECK_OK(strait_safetensors_open(path, &file));
    assert_int_equal(strait_safetensors_count(file), 3);
    assert_string_equal(strait_safetensors_metadata(file, "step"), "12");
    float matrix[6] = {0};
    CHECK_OK(
        strait_safetensors_read(file, "a.matrix \"q\"", (strait_tensor){matrix, STRAIT_F32, 2, 3}));
    assert_memory_equal(matrix, weights, sizeof matrix);
    float gain[5] = {0};
    CHECK_OK(strait_safetensors_read(file, "gain", (strait_tensor){gain, STRAIT_F32, 5, 1}));
    assert_memory_equal(gain, weights, sizeof gain);
    int8_t back[3] = {0};
    CHECK_OK(strait_safetensors_read(file, "z.codes", (strait_tensor){back, STRAIT_I8, 1, 3}));
    assert_memory_equal(back, codes, sizeof back);
    assert_int_equal(strait_safetensors_find(file, "gain")->n_dims, 1);
    strait_safetensors_close(&file);
    scratch_close(&dir);
}

/* The layout others rely on: length, JSON, data at a multiple of eight, items in order. */
static void test_bytes_are_those_of_the_format(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "w.safetensors");
    const strait_safetensors_content one = {.items = items, .n_items = 1};
    CHECK_OK(strait_safetensors_write(path, &one));
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_file_read(path, 4096, &text, &bytes));
    static const char header[] =
        "{\"z.codes\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    const size_t padded = (sizeof header - 1 + 7) / 8 * 8;
    assert_int_equal(bytes, 8 + padded + 3);
    assert_int_equal((unsigned char)text[0], padded);
    assert_memory_equal(text + 8, header, sizeof header - 1);
    assert_memory_equal(text + 8 + padded, codes, 3);
    strait_alloc_free(text);
    scratch_close(&dir);
}

static void test_names_expected_and_found_shapes(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "w.safetensors");
    CHECK_OK(strait_safetensors_write(path, &content));
    struct strait_safetensors *file = NULL;
    CHECK_OK(strait_safetensors_open(path, &file));
    float into[64] = {0};
    CHECK_FAILS(strait_safetensors_read(file, "gain", (strait_tensor){into, STRAIT_F32, 1, 6}),
                STRAIT_EDATA, "tensor \"gain\": expected F32 [1 x 6], found F32 [5]");
    CHECK_FAILS(strait_safetensors_read(file, "z.codes", (strait_tensor){into, STRAIT_F32, 1, 3}),
                STRAIT_EDATA, "tensor \"z.codes\": expected F32 [1 x 3], found I8 [3]");
    CHECK_FAILS(
        strait_safetensors_read(file, "a.matrix \"q\"", (strait_tensor){into, STRAIT_F32, 3, 2}),
        STRAIT_EDATA, "expected F32 [3 x 2], found F32 [2 x 3]");
    CHECK_FAILS(strait_safetensors_read(file, "b", (strait_tensor){into, STRAIT_F32, 3, 2}),
                STRAIT_EDATA, "w.safetensors: tensor \"b\" is missing");
    CHECK(into[0] == 0);
    strait_safetensors_close(&file);
    scratch_close(&dir);
}

static void test_refuses_to_write_what_cannot_be_read(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "w.safetensors");
    const strait_safetensors_item twice[] = {items[0], items[0]};
    CHECK_FAILS(
        strait_safetensors_write(path, &(strait_safetensors_content){.items = twice, .n_items = 2}),
        STRAIT_EINVAL, "two tensors are named \"z.codes\"");
    const strait_safetensors_item odd[] = {{"\xff", items[0].tensor, 0}};
    CHECK_FAILS(
        strait_safetensors_write(path, &(strait_safetensors_content){.items = odd, .n_items = 1}),
        STRAIT_EINVAL, "cannot be written as JSON");
    const strait_safetensors_pair bad[] = {{"k", "\xff"}};
    CHECK_FAILS(strait_safetensors_write(path, &(strait_safetensors_content){.items = items,
                                                                             .n_items = 1,
                                                                             .metadata = bad,
                                                                             .n_metadata = 1}),
                STRAIT_EINVAL, "\"__metadata__\" cannot be written as JSON");
    CHECK(!strait_file_exists(path));
    CHECK_FAILS(strait_safetensors_write(scratch_at(&dir, "none/w"), &content), STRAIT_EIO,
                "none/w: cannot create: No such file");
    CHECK_FAILS(strait_safetensors_open(path, &(struct strait_safetensors *){NULL}), STRAIT_EIO,
                "cannot open");
    scratch_close(&dir);
}

static void test_survives_any_failing_allocation(void **state) {
    (void)state;
    scratch dir = scratch_open();
    const char *path = scratch_at(&dir, "w.safetensors");
    CHECK_OK(strait_safetensors_write(path, &content));
    int n_failed = 0;
    for (int n = 1;; n++) {
        struct strait_safetensors *file = NULL;
        strait_alloc_fail_at(n);
        const strait_err err = strait_safetensors_open(path, &file);
        strait_alloc_fail_at(0);
        strait_safetensors_close(&file);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
        n_failed++;
    }
    assert_int_equal(n_failed, 3);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_broken_headers),
        cmocka_unit_test(test_refuses_broken_shapes_and_places),
        cmocka_unit_test(test_refuses_a_header_longer_than_the_file),
        cmocka_unit_test(test_reads_other_types_scalars_and_empty_tensors),
        cmocka_unit_test(test_reads_back_what_it_wrote),
        cmocka_unit_test(test_bytes_are_those_of_the_format),
        cmocka_unit_test(test_names_expected_and_found_shapes),
        cmocka_unit_test(test_refuses_to_write_what_cannot_be_read),
        cmocka_unit_test(test_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
