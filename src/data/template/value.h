/* value.h - values of templates, and the operations on them that need no template. */
#pragma once

#include "data/template/syntax.h"

#include <jansson.h>

typedef enum strait_value_kind {
    STRAIT_VALUE_UNDEFINED,
    STRAIT_VALUE_NONE,
    STRAIT_VALUE_BOOL,
    STRAIT_VALUE_INT,
    STRAIT_VALUE_STRING,
    STRAIT_VALUE_LIST,
    STRAIT_VALUE_DICT, // also a namespace, and `loop`
} strait_value_kind;

typedef struct strait_value {
    strait_value_kind kind;
    int64_t number;             // of a bool or an int; 1 for a namespace
    const char *text;           // of a string: n bytes
    const unsigned char *marks; // of a string: 1 for each byte of a message; NULL: all 0
    size_t n;                   // bytes, or elements
    struct strait_value *items; // of a list, or the values of a dict
    const char **keys;          // of a dict
    const json_t *json;         // what it was made of, for tojson; or NULL
} strait_value;

/* One rendering. */
struct strait_render {
    struct strait_arena arena;
    int64_t n_left; // operations
};

/* Counts one operation. STRAIT_EDATA: there were too many. */
strait_err strait_render_count(struct strait_render *r, int64_t n);

strait_value strait_value_bool(int is_true);
strait_value strait_value_int(int64_t number);
strait_value strait_value_text(const char *text, size_t n); // of the template; borrowed
/* A value of a message: strings in it are marked. Borrows the JSON. */
strait_err strait_value_json(struct strait_render *r, const json_t *json, int depth,
                             strait_value *out);
strait_err strait_value_list(struct strait_render *r, size_t n, strait_value *out);

int strait_value_is_true(const strait_value *v);
int strait_value_equal(const strait_value *a, const strait_value *b);
const char *strait_value_kind_name(const strait_value *v);
/* The member of a dict; undefined if there is none. */
strait_value strait_value_member(const strait_value *v, const char *key);
/* As text, as {{ }} writes it. */
strait_err strait_value_string(struct strait_render *r, const strait_value *v, strait_value *out);
strait_err strait_value_concat(struct strait_render *r, const strait_value *a,
                               const strait_value *b, strait_value *out);
/* Bytes [first, first + n) of a string. */
strait_value strait_value_cut(const strait_value *v, size_t first, size_t n);
/* Where `part` begins in a string, from `from` on; -1: nowhere. */
int64_t strait_value_find(const strait_value *v, const strait_value *part, size_t from);

/* call.c: functions, filters, methods and tests by name, with arguments of which keyword ones have
 * a name in `names`. STRAIT_ENOTSUP names what is not known. */
typedef struct strait_arguments {
    strait_value values[8];
    const char *names[8]; // NULL: positional
    int n;
} strait_arguments;

strait_err strait_call_function(struct strait_render *r, const char *name,
                                const strait_arguments *arguments, strait_value *out);
strait_err strait_call_filter(struct strait_render *r, const char *name, const strait_value *v,
                              const strait_arguments *arguments, strait_value *out);
strait_err strait_call_method(struct strait_render *r, const char *name, const strait_value *v,
                              const strait_arguments *arguments, strait_value *out);
strait_err strait_call_test(const char *name, const strait_value *v, int *out);
/* Whether a name is known: so that a template is refused when it is opened. */
int strait_call_is_known(strait_node_kind kind, const char *name);
