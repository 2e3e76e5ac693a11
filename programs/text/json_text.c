#include "json_text.h"

#include "base/json.h"

void strait_json_text_print(FILE *to, const char *text, size_t n) {
    json_t *string = strait_json_text(text, n);
    if (string == NULL || json_dumpf(string, to, JSON_ENCODE_ANY) != 0) (void)fputs("null", to);
    json_decref(string);
}
