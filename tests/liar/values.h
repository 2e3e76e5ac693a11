/* values.h - the values that a liar puts into a field. */
#pragma once

#include "base/layout.h"

/* Words that suit the type of a field, ended by NULL: "0", "-1", "max", "nan", "empty". A field
 * without one, such as the bytes behind a table, has only "random". */
const char *const *values_of(strait_field_type type);

/* Memory for texts and lists that a value brings along. Zeroed before the first use. */
struct value_memory {
    uint64_t state; // of the generator
    char text[4096];
    unsigned char bytes[4096];
};

/* Sets the field at `at` to what `value` says: one of the words, a number, "+NUMBER" or "*NUMBER"
 * for a change of the true value, or "random". Numbers beyond the type become its limit. */
void value_set(const strait_field *field, void *at, const char *value, struct value_memory *memory);
