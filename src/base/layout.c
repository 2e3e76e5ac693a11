#include "base/layout.h"

#include "base/text/text.h"

#include <string.h>

_Static_assert(sizeof(int) == 4, "STRAIT_FIELD_INT has four bytes");

/* Bytes of the types that always have the same number; 0 for the others. */
static size_t fixed_bytes(strait_field_type type) {
    switch (type) {
    case STRAIT_FIELD_FLAG: return 1;
    case STRAIT_FIELD_INT:
    case STRAIT_FIELD_U32:
    case STRAIT_FIELD_F32: return 4;
    case STRAIT_FIELD_U64:
    case STRAIT_FIELD_I64:
    case STRAIT_FIELD_F64: return 8;
    default: return 0;
    }
}

/* The object holds a pointer. NULL is written as an empty text. */
static const char *text_at(const void *at) {
    const char *text;
    memcpy(&text, at, sizeof text);
    return text != NULL ? text : "";
}

/* Must agree with write_field: messages are allocated with exactly this size. */
static size_t field_bytes(const strait_field *field, const void *at) {
    switch (field->type) {
    case STRAIT_FIELD_BYTES: return field->size;
    case STRAIT_FIELD_NAME: return 1 + strlen(at);
    case STRAIT_FIELD_TEXT:
    case STRAIT_FIELD_REASON: return 4 + strlen(text_at(at)) + 1;
    case STRAIT_FIELD_FLOATS: return 4 + 4 * (size_t)((const strait_floats *)at)->n;
    case STRAIT_FIELD_REST: return ((const strait_view *)at)->bytes;
    default: return fixed_bytes(field->type);
    }
}

size_t strait_layout_bytes(const strait_layout *layout, const void *object) {
    size_t bytes = 0;
    for (int i = 0; i < layout->n_fields; i++)
        bytes += field_bytes(&layout->fields[i],
                             (const unsigned char *)object + layout->fields[i].offset);
    return bytes;
}

/* ---- writing ---- */

/* Numbers are copied by their bits, so that floats and enums need no cases of their own. */
static void write_number(strait_writer *w, const void *at, size_t bytes) {
    uint32_t narrow;
    uint64_t wide;
    if (bytes == 8) {
        memcpy(&wide, at, sizeof wide);
        strait_writer_uint(w, wide, 8);
        return;
    }
    memcpy(&narrow, at, sizeof narrow);
    strait_writer_uint(w, narrow, 4);
}

/* The final zero is sent, too, so that the receiver can use the text in place. */
static void write_text(strait_writer *w, const char *text) {
    const size_t n = strlen(text);
    strait_writer_uint(w, n, 4);
    strait_writer_copy(w, text, n + 1);
}

static void write_floats(strait_writer *w, const strait_floats *floats) {
    strait_writer_uint(w, (uint64_t)floats->n, 4);
    for (int i = 0; i < floats->n; i++)
        strait_writer_float(w, floats->data[i]);
}

static void write_field(strait_writer *w, const strait_field *field, const void *at) {
    switch (field->type) {
    case STRAIT_FIELD_FLAG: strait_writer_uint(w, *(const int *)at != 0, 1); break;
    case STRAIT_FIELD_BYTES: strait_writer_copy(w, at, field->size); break;
    case STRAIT_FIELD_NAME: strait_writer_text(w, 1, at); break;
    case STRAIT_FIELD_TEXT:
    case STRAIT_FIELD_REASON: write_text(w, text_at(at)); break;
    case STRAIT_FIELD_FLOATS: write_floats(w, at); break;
    case STRAIT_FIELD_REST: {
        const strait_view *view = at;
        strait_writer_copy(w, view->data, view->bytes);
        break;
    }
    default: write_number(w, at, fixed_bytes(field->type)); break;
    }
}

void strait_layout_write(const strait_layout *layout, const void *object, strait_writer *w) {
    for (int i = 0; i < layout->n_fields; i++)
        write_field(w, &layout->fields[i],
                    (const unsigned char *)object + layout->fields[i].offset);
}

/* ---- reading ---- */

/* The reverse of write_number: the type of the field decides how many bytes are stored. */
static void read_number(strait_reader *r, void *at, size_t bytes) {
    const uint64_t wide = strait_reader_uint(r, (int)bytes);
    const uint32_t narrow = (uint32_t)wide;
    memcpy(at, bytes == 8 ? (const void *)&wide : (const void *)&narrow, bytes);
}

/* Other values are malformed: each message has exactly one encoding. */
static void read_flag(strait_reader *r, int *out) {
    const uint64_t value = strait_reader_uint(r, 1);
    if (value > 1) r->is_short = 1;
    *out = value == 1;
}

/* Names end up in logs and on terminals of people who did not choose them. */
static void read_name(strait_reader *r, char *out, size_t size) {
    strait_reader_text(r, 1, out, size);
    strait_text_tame(out);
}

/* A view of a text in the message. A zero inside would hide what follows it, so it is refused. */
static const char *read_text(strait_reader *r, int is_for_people) {
    static const char nothing[] = "";
    const uint64_t n = strait_reader_uint(r, 4);
    if (r->is_short || n >= r->left || memchr(r->at, '\0', (size_t)n + 1) != r->at + n) {
        r->is_short = 1;
        r->left = 0;
        return nothing;
    }
    /* The bytes are the caller's message, which is writable; the reader only sees it as const. */
    char *text = (char *)(uintptr_t)r->at; // NOLINT(performance-no-int-to-ptr)
    r->at += n + 1;
    r->left -= n + 1;
    if (is_for_people) strait_text_tame(text);
    return text;
}

/* The count comes from the network, so it is checked against both the memory and the message. */
static void read_floats(strait_reader *r, strait_float_memory memory, strait_floats *out) {
    const uint64_t n = strait_reader_uint(r, 4);
    *out = (strait_floats){memory.data, 0};
    if (r->is_short || n > (uint64_t)memory.capacity || n > r->left / 4) {
        r->is_short = 1;
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        memory.data[i] = strait_reader_float(r);
    out->n = (int)n;
}

/* Every length is checked before memory is touched, because messages come from the network. */
static void read_field(strait_reader *r, const strait_field *field, strait_float_memory memory,
                       void *at) {
    const char *text = NULL;
    switch (field->type) {
    case STRAIT_FIELD_FLAG: read_flag(r, at); break;
    case STRAIT_FIELD_BYTES: strait_reader_copy(r, at, field->size); break;
    case STRAIT_FIELD_NAME: read_name(r, at, field->size); break;
    case STRAIT_FIELD_TEXT:
    case STRAIT_FIELD_REASON:
        text = read_text(r, field->type == STRAIT_FIELD_REASON);
        memcpy(at, &text, sizeof text);
        break;
    case STRAIT_FIELD_FLOATS: read_floats(r, memory, at); break;
    case STRAIT_FIELD_REST:
        *(strait_view *)at = (strait_view){r->at, r->left};
        r->at += r->left;
        r->left = 0;
        break;
    default: read_number(r, at, fixed_bytes(field->type)); break;
    }
}

void strait_layout_read(const strait_layout *layout, strait_reader *r, strait_float_memory memory,
                        void *object) {
    for (int i = 0; i < layout->n_fields; i++)
        read_field(r, &layout->fields[i], memory,
                   (unsigned char *)object + layout->fields[i].offset);
}

/* For the test that prints the layout of every message. */
const char *strait_field_type_name(strait_field_type type) {
    static const char *const names[] = {
        [STRAIT_FIELD_FLAG] = "flag",     [STRAIT_FIELD_INT] = "i32",
        [STRAIT_FIELD_U32] = "u32",       [STRAIT_FIELD_U64] = "u64",
        [STRAIT_FIELD_I64] = "i64",       [STRAIT_FIELD_F32] = "f32",
        [STRAIT_FIELD_F64] = "f64",       [STRAIT_FIELD_BYTES] = "bytes",
        [STRAIT_FIELD_NAME] = "name",     [STRAIT_FIELD_TEXT] = "text",
        [STRAIT_FIELD_REASON] = "reason", [STRAIT_FIELD_FLOATS] = "floats",
        [STRAIT_FIELD_REST] = "rest",
    };
    return names[type];
}
