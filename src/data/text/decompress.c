#define ZLIB_CONST

#include "data/text/decompress.h"

#include "base/alloc.h"

#include <limits.h>
#include <lzma.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* The caller adds the path, which the decoders do not know. */
static strait_err damaged(const char *name, const char *reason) {
    return STRAIT_FAIL(STRAIT_EDATA, "damaged %s data: %s; copy the file again", name,
                       reason != NULL ? reason : "unknown");
}

struct gzip {
    z_stream z;
    int is_between; // after a complete member: the file may end or another member may follow
};

static strait_err gzip_open(void **state) {
    struct gzip *g = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *g, "gzip", (void **)&g));
    if (inflateInit2(&g->z, 15 + 16) != Z_OK) { // 15: the largest window; 16: gzip headers
        strait_alloc_free(g);
        return STRAIT_FAIL(STRAIT_ENOMEM, "gzip");
    }
    *state = g;
    return STRAIT_OK;
}

/* A gzip file may be several members in a row, as parallel compressors and "cat" produce. The
 * counts of zlib have 32 bits, so large buffers are offered in parts. */
static strait_err gzip_step(void *state, strait_decompress_io *io) {
    struct gzip *g = state;
    if (g->is_between && io->n_in > 0) {
        (void)inflateReset(&g->z);
        g->is_between = 0;
    }
    g->z.next_in = io->in;
    g->z.avail_in = io->n_in > UINT_MAX ? UINT_MAX : (unsigned)io->n_in;
    g->z.next_out = io->out;
    g->z.avail_out = io->n_out > UINT_MAX ? UINT_MAX : (unsigned)io->n_out;
    const int rc = g->is_between ? Z_BUF_ERROR : inflate(&g->z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) return damaged("gzip", g->z.msg);
    io->n_in -= (size_t)(g->z.next_in - io->in);
    io->n_out -= (size_t)(g->z.next_out - io->out);
    if (rc == Z_STREAM_END) g->is_between = 1;
    io->is_whole = g->is_between;
    return STRAIT_OK;
}

/* The library frees its own memory; the struct is ours. */
static void gzip_close(void *state) {
    struct gzip *g = state;
    (void)inflateEnd(&g->z);
    strait_alloc_free(g);
}

static strait_err xz_open(void **state) {
    lzma_stream *s = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *s, "xz", (void **)&s));
    *s = (lzma_stream)LZMA_STREAM_INIT;
    if (lzma_stream_decoder(s, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK) { // no memory limit
        strait_alloc_free(s);
        return STRAIT_FAIL(STRAIT_ENOMEM, "xz");
    }
    *state = s;
    return STRAIT_OK;
}

/* The last call must say so: xz finds a truncated file only then. */
static strait_err xz_step(void *state, strait_decompress_io *io) {
    lzma_stream *s = state;
    s->next_in = io->in;
    s->avail_in = io->n_in;
    s->next_out = io->out;
    s->avail_out = io->n_out;
    const lzma_ret rc = lzma_code(s, io->is_last ? LZMA_FINISH : LZMA_RUN);
    if (rc == LZMA_MEM_ERROR) return STRAIT_FAIL(STRAIT_ENOMEM, "xz");
    if (rc != LZMA_OK && rc != LZMA_STREAM_END && rc != LZMA_BUF_ERROR)
        return damaged("xz", rc == LZMA_FORMAT_ERROR ? "not xz" : "a checksum does not match");
    io->n_in = s->avail_in;
    io->n_out = s->avail_out;
    io->is_whole = rc == LZMA_STREAM_END;
    return STRAIT_OK;
}

static void xz_close(void *state) {
    lzma_end(state);
    strait_alloc_free(state);
}

enum {
    ZSTD_WINDOWLOG_LIMIT = sizeof(void *) == 4 ? 30 : 31 // as zstd --long=31
};

struct zstd {
    ZSTD_DStream *stream;
    int is_between; // after a complete frame
};

static strait_err zstd_open(void **state) {
    struct zstd *z = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *z, "zstd", (void **)&z));
    z->stream = ZSTD_createDStream();
    if (z->stream == NULL) {
        strait_alloc_free(z);
        return STRAIT_FAIL(STRAIT_ENOMEM, "zstd");
    }
    (void)ZSTD_DCtx_setParameter(z->stream, ZSTD_d_windowLogMax, ZSTD_WINDOWLOG_LIMIT);
    *state = z;
    return STRAIT_OK;
}

/* Without input, a decoder between two frames would report an error instead of the end. */
static strait_err zstd_step(void *state, strait_decompress_io *io) {
    struct zstd *z = state;
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    if (!z->is_between || io->n_in > 0) {
        const size_t rc = ZSTD_decompressStream(z->stream, &out, &in);
        if (ZSTD_isError(rc)) return damaged("zstd", ZSTD_getErrorName(rc));
        z->is_between = rc == 0;
    }
    io->n_in -= in.pos;
    io->n_out -= out.pos;
    io->is_whole = z->is_between;
    return STRAIT_OK;
}

static void zstd_close(void *state) {
    struct zstd *z = state;
    (void)ZSTD_freeDStream(z->stream);
    strait_alloc_free(z);
}

enum {
    GZIP,
    XZ,
    ZSTD
};

static const struct strait_decompress_ops formats[] = {
    [GZIP] = {"gzip", ".gz", {0x1f, 0x8b}, 2, gzip_open, gzip_step, gzip_close},
    [XZ] = {"xz", ".xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, xz_open, xz_step, xz_close},
    [ZSTD] = {"zstd", ".zst", {0x28, 0xb5, 0x2f, 0xfd}, 4, zstd_open, zstd_step, zstd_close},
};

/* zstd data may start with a skippable frame, which ZSTD_decompressStream ignores. */
static int is_skippable(const unsigned char *start, size_t n) {
    return n >= 4 && (start[0] & 0xf0) == 0x50 && memcmp(start + 1, "\x2a\x4d\x18", 3) == 0;
}

/* By content, not by name: standard input has no name. */
const struct strait_decompress_ops *strait_decompress_find(const unsigned char *start, size_t n) {
    if (is_skippable(start, n)) return &formats[ZSTD];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (n >= formats[i].n_magic && memcmp(start, formats[i].magic, formats[i].n_magic) == 0)
            return &formats[i];
    return NULL;
}

/* Used to reject a .gz file that is not gzip, instead of training on it as text. */
const char *strait_decompress_name_of_extension(const char *path) {
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(dot, formats[i].extension) == 0) return formats[i].name;
    return NULL;
}

/* Formats in which people keep text and which we do not read. If they were taken for plain text, a
 * model would be trained on their bytes without any error. */
const char *strait_decompress_find_unsupported(const unsigned char *start, size_t n) {
    static const struct {
        const char *name, *magic;
        size_t n_magic, at;
    } unsupported[] = {
        {"a zip archive", "PK\3\4", 4, 0},    {"a 7z archive", "7z\xbc\xaf\x27\x1c", 6, 0},
        {"a tar archive", "ustar", 5, 257},   {"bzip2 data", "1AY&SY", 6, 4},
        {"a Parquet file", "PAR1", 4, 0},     {"a PDF document", "%PDF-", 5, 0},
        {"lz4 data", "\4\"M\x18", 4, 0},      {"lzma data", "]\0\0", 3, 0},
        {"text in UTF-16", "\xff\xfe", 2, 0}, {"text in UTF-16", "\xfe\xff", 2, 0},
    };
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (n >= unsupported[i].at + unsupported[i].n_magic &&
            memcmp(start + unsupported[i].at, unsupported[i].magic, unsupported[i].n_magic) == 0)
            return unsupported[i].name;
    return NULL;
}
