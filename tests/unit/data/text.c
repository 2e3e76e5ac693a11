#define ZLIB_CONST

#include "data/text/text.h"

#include "base/alloc.h"
#include "folder.h"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

enum {
    BIG = 1 << 20
};

static char big[BIG + 1];

/* Concatenates all pieces, with ! after the last piece of a document and | after the others. */
static const char *read_all(const strait_text_spec *spec, size_t piece_bytes, strait_err *err) {
    static char out[2 * BIG];
    struct strait_text *text = NULL;
    strait_text_piece piece = {.is_over = 0};
    size_t at = 0;
    CHECK_OK(strait_text_open(spec, piece_bytes, &text));
    for (;;) {
        piece.text.n = 0;
        *err = strait_text_next(text, &piece);
        if (*err != STRAIT_OK || piece.is_over) break;
        memcpy(out + at, piece.text.data, piece.text.n);
        at += piece.text.n;
        out[at++] = piece.ends_document ? '!' : '|';
    }
    out[at] = '\0';
    strait_alloc_free(piece.text.data);
    strait_text_close(&text);
    return out;
}

static const char *read_one(const char *path, const char *field) {
    strait_err err = STRAIT_OK;
    const char *paths[] = {path};
    const char *all = read_all(&(strait_text_spec){.paths = paths, .n_paths = 1, .field = field}, 0,
                               &err);
    CHECK_OK(err);
    return all;
}

static void check_fails(const char *path, strait_err expected, const char *message) {
    strait_err err = STRAIT_OK;
    const char *paths[] = {path};
    (void)read_all(&(strait_text_spec){.paths = paths, .n_paths = 1}, 0, &err);
    CHECK_FAILS(err, expected, message);
}

static void put_text(const char *name, const char *text) {
    put_file(in_folder(name), text, strlen(text));
}

static void test_reads_plain_text_and_json_lines(void **state) {
    (void)state;
    put_text("a.txt", "one\ntwo\n");
    put_text("empty.txt", "");
    put_text("b.jsonl",
             "{\"text\":\"x\\u0000y\",\"id\":1}\n\n  \r\n{\"text\":\"\"}\n{\"text\":\"z\"}");
    put_text("c.ndjson", "{\"body\":\"q\"}\n");
    strait_err err = STRAIT_OK;
    const char *paths[] = {in_folder("a.txt"), in_folder("empty.txt"), in_folder("b.jsonl"),
                           in_folder("a.txt")};
    const char *all = read_all(&(strait_text_spec){.paths = paths, .n_paths = 4}, 0, &err);
    CHECK_OK(err);
    assert_memory_equal(all, "one\ntwo\n!x\0y!z!one\ntwo\n!", 25);
    assert_string_equal(read_one(in_folder("c.ndjson"), "body"), "q!");
    check_fails(in_folder("c.ndjson"), STRAIT_EDATA,
                "c.ndjson: line 1 has no text under \"text\"; name the key");
    put_text("e.json", "{\"body\":\"r\"}\n");
    assert_string_equal(read_one(in_folder("e.json"), "body"), "r!"); // --field implies JSON Lines
    put_text("f.jsonlines.JSONL", "{\"text\":\"s\"}\n");
    assert_string_equal(read_one(in_folder("f.jsonlines.JSONL"), NULL), "s!");
    put_text("d.jsonl", "{\"text\":\"ok\"}\n{\"text\": \n");
    check_fails(in_folder("d.jsonl"), STRAIT_EDATA, "d.jsonl: line 2");
    put_text("h.jsonl", "{\"id\":18446744073709551615,\"text\":\"t\"}\n");
    assert_string_equal(read_one(in_folder("h.jsonl"), NULL), "t!");
}

/* Every file is checked before the first one is read. */
static void test_reports_missing_files_at_open(void **state) {
    (void)state;
    struct strait_text *text = NULL;
    put_text("a.txt", "one");
    const char *paths[] = {in_folder("a.txt"), in_folder("none.txt")};
    CHECK_FAILS(strait_text_open(&(strait_text_spec){.paths = paths, .n_paths = 2}, 0, &text),
                STRAIT_EIO, "none.txt: no such file");
}

/* The end of an empty document must not be taken for the end of the next document's first piece. */
static void test_skips_empty_document_before_long_one(void **state) {
    (void)state;
    strait_err err = STRAIT_OK;
    put_text("empty.txt", "");
    memset(big, 'x', BIG);
    put_file(in_folder("much.txt"), big, BIG);
    const char *paths[] = {in_folder("empty.txt"), in_folder("much.txt")};
    const char *all = read_all(&(strait_text_spec){.paths = paths, .n_paths = 2}, 0, &err);
    CHECK_OK(err);
    const char *end = strchr(all, '!');
    CHECK(end != NULL && end[1] == '\0');
}

static void test_splits_between_visible_characters_only(void **state) {
    (void)state;
    const unsigned char *text = (const unsigned char *)"ab\ncd\n ef\n\ngh\r\nij.\n'k\n";
    assert_int_equal(strait_text_find_split(text, 22), 19); // before 'k
    assert_int_equal(strait_text_find_split(text, 19),
                     3); // no other line feed is between visible characters
    assert_int_equal(strait_text_find_split(text, 4), 3);
    assert_int_equal(strait_text_find_split(text, 3), 0);
    assert_int_equal(strait_text_find_split(text, 0), 0);
    put_text("cut.txt", "ab\ncd\n ef\n\ngh\r\nij.\n'k\n");
    strait_err err = STRAIT_OK;
    const char *paths[] = {in_folder("cut.txt")};
    const char *all = read_all(&(strait_text_spec){.paths = paths, .n_paths = 1}, 4, &err);
    CHECK_OK(err);
    assert_string_equal(all, "ab\ncd\n ef\n\ngh\r\nij.\n|'k\n!");
}

static unsigned char compressed[2 * BIG];

static size_t compress_gzip(const char *text, size_t n, unsigned char *out, size_t capacity) {
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (const unsigned char *)text;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)capacity;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    const size_t n_out = z.total_out;
    (void)deflateEnd(&z);
    return n_out;
}

static size_t compress_xz(const char *text, size_t n, unsigned char *out, size_t capacity) {
    size_t n_out = 0;
    CHECK(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, n, out, &n_out,
                                  capacity) == LZMA_OK);
    return n_out;
}

static int window_log; // of compress_zstd; 0: the library's default

static size_t compress_zstd(const char *text, size_t n, unsigned char *out, size_t capacity) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    CHECK(context != NULL);
    CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)));
    CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log)));
    CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, window_log == 0)));
    const size_t n_out = ZSTD_compress2(context, out, capacity, text, n);
    CHECK(!ZSTD_isError(n_out));
    (void)ZSTD_freeCCtx(context);
    return n_out;
}

/* Reads complete, concatenated, truncated and damaged files. */
static void check_compressed(const char *name, const char *format,
                             size_t (*compress)(const char *, size_t, unsigned char *, size_t)) {
    const char *path = in_folder(name);
    const size_t first = compress("hello ", 6, compressed, sizeof compressed);
    const size_t second = compress("world", 5, compressed + first, sizeof compressed - first);
    put_file(path, compressed, first + second);
    assert_string_equal(read_one(path, NULL), "hello world!");
    put_file(path, compressed, first + second - 3);
    check_fails(path, STRAIT_EDATA, name);
    CHECK(strstr(strait_err_detail(), "truncated") != NULL);
    CHECK(strstr(strait_err_detail(), format) != NULL);

    const size_t n = compress(big, BIG, compressed, sizeof compressed);
    put_file(path, compressed, n);
    struct strait_text *text = NULL;
    strait_text_piece piece = {.is_over = 0};
    const char *paths[] = {path};
    CHECK_OK(strait_text_open(&(strait_text_spec){.paths = paths, .n_paths = 1}, 0, &text));
    assert_int_equal(strait_text_bytes_total(text), n);
    CHECK_OK(strait_text_next(text, &piece));
    assert_int_equal(piece.text.n, BIG);
    assert_memory_equal(piece.text.data, big, BIG);
    assert_int_equal(strait_text_bytes_read(text), n);
    strait_alloc_free(piece.text.data);
    strait_text_close(&text);
    compressed[n / 2] ^= 0x40;
    compressed[n / 2 + 1] ^= 0xff;
    put_file(path, compressed, n);
    check_fails(path, STRAIT_EDATA, name);
}

static void test_reads_compressed_files(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < BIG; i++) {
        seed = seed * 1664525u + 1013904223u;
        big[i] = (char)('a' + (seed >> 24) % 26);
    }
    check_compressed("p.gz", "gzip", compress_gzip);
    check_compressed("p.xz", "xz", compress_xz);
    check_compressed("p.zst", "zstd", compress_zstd);
    window_log = 28; // more than zstd accepts by default
    const size_t n_long = compress_zstd("far away", 8, compressed, sizeof compressed);
    put_file(in_folder("long.zst"), compressed, n_long);
    assert_string_equal(read_one(in_folder("long.zst"), NULL), "far away!");
    window_log = 0;
    put_text("fake.gz", "just text");
    check_fails(in_folder("fake.gz"), STRAIT_EDATA, "fake.gz: not gzip data");
    put_text("none.gz", "");
    check_fails(in_folder("none.gz"), STRAIT_EDATA, "none.gz: not gzip data");
    put_text("wide.txt", "\xff\xfex");
    check_fails(in_folder("wide.txt"), STRAIT_EDATA, "wide.txt: this is text in UTF-16");
    memcpy(compressed, "\x5e\x2a\x4d\x18\2\0\0\0no", 10); // a skippable frame
    put_file(in_folder("more.zst"), compressed,
             10 + compress_zstd("yes", 3, compressed + 10, sizeof compressed - 10));
    assert_string_equal(read_one(in_folder("more.zst"), NULL), "yes!");
    const size_t n = compress_zstd("{\"text\":\"in lines\"}\n", 20, compressed, sizeof compressed);
    put_file(in_folder("l.jsonl.zst"), compressed, n);
    assert_string_equal(read_one(in_folder("l.jsonl.zst"), NULL), "in lines!");
}

static void test_rejects_what_is_not_text(void **state) {
    (void)state;
    static const char picture[] = "GIF89a\1\0\1\0 and more";
    put_file(in_folder("picture.txt"), picture, sizeof picture - 1);
    check_fails(in_folder("picture.txt"), STRAIT_EDATA,
                "picture.txt: this is binary data, not text (byte 7 is NUL); convert it to text");
    put_file(in_folder("picture.gz"), compressed,
             compress_gzip(picture, sizeof picture - 1, compressed, sizeof compressed));
    check_fails(in_folder("picture.gz"), STRAIT_EDATA, "picture.gz: this is binary data");
    put_text("koi8.txt", "\xf0\xd2\xc9\xd7\xc5\xd4, \xcd\xc9\xd2");
    check_fails(in_folder("koi8.txt"), STRAIT_EDATA,
                "koi8.txt: this is not text in UTF-8 (8 of its first 11 bytes are not); if it is "
                "text, convert it first: iconv");
    put_text("latin.txt", "caf\xe9 noir, s'il vous pla\xeet");
    assert_string_equal(read_one(in_folder("latin.txt"), NULL),
                        "caf\xe9 noir, s'il vous pla\xeet!");
    /* The last character that is looked at is incomplete, and a NUL far behind is no matter. */
    for (size_t i = 0; i + 3 <= BIG; i += 3)
        memcpy(big + i, "\xe6\x97\xa5", 3);
    big[BIG - 1] = '\0';
    put_file(in_folder("han.txt"), big, BIG);
    assert_memory_equal(read_one(in_folder("han.txt"), NULL), big, BIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_plain_text_and_json_lines),
        cmocka_unit_test(test_reports_missing_files_at_open),
        cmocka_unit_test(test_skips_empty_document_before_long_one),
        cmocka_unit_test(test_splits_between_visible_characters_only),
        cmocka_unit_test(test_reads_compressed_files),
        cmocka_unit_test(test_rejects_what_is_not_text),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
