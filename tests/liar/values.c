#include "liar/values.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const *values_of(strait_field_type type) {
    static const char *const flags[] = {"0", "1", NULL};
    static const char *const integers[] = {"0",   "-1",  "1",      "+1", "1000000",
                                           "max", "min", "random", NULL};
    static const char *const reals[] = {"0",   "-1",  "1",    "*2",    "max",    "min",
                                        "nan", "inf", "-inf", "1e300", "random", NULL};
    static const char *const texts[] = {"empty", "long", "random", NULL};
    static const char *const bytes[] = {"0", "random", NULL};
    switch (type) {
    case STRAIT_FIELD_FLAG: return flags;
    case STRAIT_FIELD_INT:
    case STRAIT_FIELD_U32:
    case STRAIT_FIELD_U64:
    case STRAIT_FIELD_I64: return integers;
    case STRAIT_FIELD_F32:
    case STRAIT_FIELD_F64:
    case STRAIT_FIELD_FLOATS: return reals;
    case STRAIT_FIELD_NAME:
    case STRAIT_FIELD_TEXT:
    case STRAIT_FIELD_REASON: return texts;
    case STRAIT_FIELD_BYTES:
    case STRAIT_FIELD_REST: break;
    }
    return bytes;
}

static uint64_t draw(struct value_memory *memory) {
    memory->state += 0x9e3779b97f4a7c15u; // splitmix64
    uint64_t z = memory->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- numbers ---- */

static double new_real(double is, const char *value, double most, struct value_memory *memory) {
    if (strcmp(value, "max") == 0) return most;
    if (strcmp(value, "min") == 0) return -most;
    if (strcmp(value, "random") == 0) return ldexp((double)(int64_t)draw(memory), -32);
    if (value[0] == '*') return is * strtod(value + 1, NULL);
    if (value[0] == '+') return is + strtod(value + 1, NULL);
    return strtod(value, NULL);
}

/* Computed as a real number, whose limits do not overflow; the extremes are exact. */
static int64_t new_integer(int64_t is, const char *value, int64_t least, int64_t most,
                           struct value_memory *memory) {
    if (strcmp(value, "max") == 0) return most;
    if (strcmp(value, "min") == 0) return least;
    if (strcmp(value, "random") == 0) return (int64_t)draw(memory);
    const double real = new_real((double)is, value, DBL_MAX, memory);
    if (isnan(real)) return 0;
    return real >= (double)most ? most : real <= (double)least ? least : (int64_t)real;
}

static void set_floats(strait_floats *floats, const char *value, struct value_memory *memory) {
    float *data = (float *)(uintptr_t)floats->data; // the parcel's own
    for (int i = 0; i < floats->n; i++)
        data[i] = (float)new_real(data[i], value, FLT_MAX, memory);
}

/* ---- texts and bytes ---- */

static void fill(char *text, size_t n, const char *value, struct value_memory *memory) {
    const int is_random = strcmp(value, "random") == 0;
    if (strcmp(value, "empty") == 0) n = 0;
    for (size_t i = 0; i < n; i++)
        text[i] = is_random ? (char)(1 + draw(memory) % UCHAR_MAX) : '%';
    text[n] = '\0';
}

static void randomise(unsigned char *bytes, size_t n, const char *value,
                      struct value_memory *memory) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = strcmp(value, "random") == 0 ? (unsigned char)draw(memory) : 0;
}

static void set_rest(strait_view *view, const char *value, struct value_memory *memory) {
    if (view->bytes > sizeof memory->bytes) view->bytes = sizeof memory->bytes;
    randomise(memory->bytes, view->bytes, value, memory);
    view->data = memory->bytes;
}

static void set_unsigned(void *at, size_t size, const char *value, struct value_memory *memory) {
    uint64_t is = 0;
    memcpy(&is, at, size); // little-endian, as all machines that build this
    is = strcmp(value, "max") == 0
             ? UINT64_MAX
             : (uint64_t)new_integer((int64_t)is, value, 0, INT64_MAX, memory);
    if (strcmp(value, "-1") == 0) is = UINT64_MAX;
    memcpy(at, &is, size);
}

void value_set(const strait_field *field, void *at, const char *value,
               struct value_memory *memory) {
    const char *text = memory->text;
    switch (field->type) {
    case STRAIT_FIELD_FLAG:
    case STRAIT_FIELD_INT:
        *(int *)at = (int)new_integer(*(int *)at, value, INT_MIN, INT_MAX, memory);
        break;
    case STRAIT_FIELD_I64:
        *(int64_t *)at = new_integer(*(int64_t *)at, value, INT64_MIN, INT64_MAX, memory);
        break;
    case STRAIT_FIELD_U32:
    case STRAIT_FIELD_U64: set_unsigned(at, field->size, value, memory); break;
    case STRAIT_FIELD_F32:
        *(float *)at = (float)new_real(*(float *)at, value, FLT_MAX, memory);
        break;
    case STRAIT_FIELD_F64: *(double *)at = new_real(*(double *)at, value, DBL_MAX, memory); break;
    case STRAIT_FIELD_FLOATS: set_floats(at, value, memory); break;
    case STRAIT_FIELD_NAME: fill(at, field->size - 1, value, memory); break;
    case STRAIT_FIELD_TEXT:
    case STRAIT_FIELD_REASON:
        fill(memory->text, sizeof memory->text - 1, value, memory);
        memcpy(at, &text, sizeof text);
        break;
    case STRAIT_FIELD_BYTES: randomise(at, field->size, value, memory); break;
    case STRAIT_FIELD_REST: set_rest(at, value, memory); break;
    }
}
