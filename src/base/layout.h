/* layout.h - a struct as bytes, described once by a table of its fields.
 *
 * A layout lists the fields of a struct in the order of the wire: name, type and offset. Packing,
 * unpacking, bounds checks, the byte count and the rows of docs/wire.md all come from that one
 * table, so none of them can disagree with another. All numbers are little-endian.
 *
 * Unpacking trusts nothing: a message that ends early, a text without its zero, a flag that is
 * neither 0 nor 1 or a list longer than the caller's memory marks the reader as short. Texts and
 * byte ranges come back as views into the message, which must outlive the struct. */
#pragma once

#include "base/bytes.h"

typedef enum strait_field_type {
    STRAIT_FIELD_FLAG,   // int, 0 or 1: one byte
    STRAIT_FIELD_INT,    // int or enum: four bytes, two's complement
    STRAIT_FIELD_U32,    // uint32_t: four bytes
    STRAIT_FIELD_U64,    // uint64_t: eight bytes
    STRAIT_FIELD_I64,    // int64_t: eight bytes, two's complement
    STRAIT_FIELD_F32,    // float: four bytes, by its bits
    STRAIT_FIELD_F64,    // double: eight bytes, by its bits
    STRAIT_FIELD_BYTES,  // unsigned char array: as many bytes as it has
    STRAIT_FIELD_NAME,   // char array: one byte of length, then the text, made fit to be shown
    STRAIT_FIELD_TEXT,   // const char *: four bytes of length, the text, a zero byte; NULL packs as
                         // ""
    STRAIT_FIELD_REASON, // the same, shown to people: unpacking replaces control characters by '?'
    STRAIT_FIELD_FLOATS, // strait_floats: four bytes of count, then four bytes each
    STRAIT_FIELD_REST    // strait_view: all bytes up to the end of the message; last field only
} strait_field_type;

typedef struct strait_floats {
    const float *data; // borrowed
    int n;
} strait_floats;

typedef struct strait_view {
    const unsigned char *data; // borrowed
    size_t bytes;
} strait_view;

typedef struct strait_field {
    const char *name;
    strait_field_type type;
    size_t offset; // in the struct
    size_t size;   // of the member; what BYTES and NAME need
} strait_field;

typedef struct strait_layout {
    const char *name;
    const strait_field *fields;
    int n_fields;
} strait_layout;

/* One entry of a table; `member` may name a member of a member. */
#define STRAIT_FIELD(type, object, member) \
    { #member, STRAIT_FIELD_##type, offsetof(object, member), sizeof(((object *)0)->member) }

/* A layout from an array of fields. */
#define STRAIT_LAYOUT(name, array) \
    { name, (array), (int)(sizeof(array) / sizeof *(array)) }

/* The bytes that `object` packs into. */
size_t strait_layout_bytes(const strait_layout *layout, const void *object);

/* Appends all fields of `object`. */
void strait_layout_write(const strait_layout *layout, const void *object, strait_writer *w);

/* Memory for the floats of a message. */
typedef struct strait_float_memory {
    float *data;
    int capacity; // more floats than this are refused
} strait_float_memory;

/* Reads all fields into `object`. The bytes behind `r` must be writable, since reasons are cleaned
 * in place. Check r->is_short, and r->left where nothing may follow. */
void strait_layout_read(const strait_layout *layout, strait_reader *r, strait_float_memory memory,
                        void *object);

/* The type as docs/wire.md prints it: "u32", "text". */
const char *strait_field_type_name(strait_field_type type);
