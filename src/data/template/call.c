/* call.c - what templates call by name. */
#include "data/template/value.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANGE_MAX = 10000
};

static strait_err unknown(const char *what, const char *name) {
    return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: the %s %.30s is not supported", what, name);
}

static strait_err unfit(const char *what, const strait_value *v) {
    return STRAIT_FAIL(STRAIT_EDATA, "chat template: %.30s does not fit %s", what,
                       strait_value_kind_name(v));
}

static const strait_value *argument(const strait_arguments *a, int i) {
    return i < a->n ? &a->values[i] : NULL;
}

/* ---- strings ---- */

static int is_in(char c, const strait_value *set) {
    if (set == NULL) return isspace((unsigned char)c);
    return set->n > 0 && memchr(set->text, c, set->n) != NULL;
}

static strait_value strip(const strait_value *v, const strait_value *set, int left, int right) {
    size_t first = 0, end = v->n;
    while (left && first < end && is_in(v->text[first], set))
        first++;
    while (right && end > first && is_in(v->text[end - 1], set))
        end--;
    return strait_value_cut(v, first, end - first);
}

/* Whether byte i becomes a capital letter; mode: upper, lower, title or capitalize. */
static int is_capital(const strait_value *v, size_t i, char mode) {
    if (mode == 'u' || mode == 'l') return mode == 'u';
    return i == 0 || (mode == 't' && !isalnum((unsigned char)v->text[i - 1]));
}

/* ASCII alone, as templates need it for roles. */
static char with_case(char c, int is_upper) {
    static const char lower[] = "abcdefghijklmnopqrstuvwxyz",
                      upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *from = is_upper ? lower : upper, *to = is_upper ? upper : lower;
    const char *at = c != '\0' ? strchr(from, c) : NULL;
    if (at == NULL) return c;
    return to[at - from];
}

static strait_err change_case(struct strait_render *r, const strait_value *v, char mode,
                              strait_value *out) {
    char *text = NULL;
    STRAIT_TRY(strait_arena_alloc(&r->arena, v->n + 1, (void **)&text));
    for (size_t i = 0; i < v->n; i++) {
        const int is_upper = is_capital(v, i, mode);
        text[i] = with_case(v->text[i], is_upper);
    }
    *out = strait_value_text(text, v->n);
    out->marks = v->marks;
    return STRAIT_OK;
}

static strait_err split(struct strait_render *r, const strait_value *v, const strait_value *by,
                        strait_value *out) {
    if (by == NULL || by->kind != STRAIT_VALUE_STRING || by->n == 0)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: split needs a string");
    size_t n = 1, from = 0;
    STRAIT_TRY(strait_render_count(r, (int64_t)(v->n / 16)));
    for (int64_t at = 0; (at = strait_value_find(v, by, (size_t)at)) >= 0; at += (int64_t)by->n)
        n++;
    STRAIT_TRY(strait_value_list(r, n, out));
    for (size_t i = 0; i < n; i++) {
        const int64_t at = i + 1 < n ? strait_value_find(v, by, from) : (int64_t)v->n;
        out->items[i] = strait_value_cut(v, from, (size_t)at - from);
        from = (size_t)at + by->n;
    }
    return STRAIT_OK;
}

static strait_err join(struct strait_render *r, const strait_value *list, const strait_value *by,
                       strait_value *out) {
    *out = strait_value_text("", 0);
    for (size_t i = 0; i < list->n; i++) {
        strait_value text;
        STRAIT_TRY(strait_value_string(r, &list->items[i], &text));
        if (i > 0 && by != NULL) STRAIT_TRY(strait_value_concat(r, out, by, out));
        STRAIT_TRY(strait_value_concat(r, out, &text, out));
    }
    return STRAIT_OK;
}

static strait_err replace(struct strait_render *r, const strait_value *v, const strait_arguments *a,
                          strait_value *out) {
    strait_value parts;
    if (a->n != 2 || a->values[1].kind != STRAIT_VALUE_STRING)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: replace needs two strings");
    STRAIT_TRY(split(r, v, &a->values[0], &parts));
    return join(r, &parts, &a->values[1], out);
}

static int begins(const strait_value *v, const strait_value *part, int at_end) {
    if (part == NULL || part->kind != STRAIT_VALUE_STRING || part->n > v->n) return 0;
    return part->n == 0 ||
           memcmp(v->text + (at_end ? v->n - part->n : 0), part->text, part->n) == 0;
}

static const char *const methods[] = {"strip",      "lstrip",     "rstrip", "upper",   "lower",
                                      "title",      "capitalize", "split",  "replace", "get",
                                      "startswith", "endswith",   NULL};

strait_err strait_call_method(struct strait_render *r, const char *name, const strait_value *v,
                              const strait_arguments *a, strait_value *out) {
    const strait_value *first = argument(a, 0);
    STRAIT_TRY(strait_render_count(r, 1 + (int64_t)(v->n / 64)));
    if (v->kind == STRAIT_VALUE_DICT) STRAIT_TRY(strait_render_count(r, (int64_t)(v->n / 8)));
    if (strcmp(name, "get") == 0 && v->kind == STRAIT_VALUE_DICT && first != NULL &&
        first->kind == STRAIT_VALUE_STRING) {
        *out = strait_value_member(v, first->text);
        if (out->kind == STRAIT_VALUE_UNDEFINED)
            *out = a->n > 1 ? a->values[1] : (strait_value){.kind = STRAIT_VALUE_NONE};
        return STRAIT_OK;
    }
    if (v->kind != STRAIT_VALUE_STRING) return unfit(name, v);
    if (first != NULL && first->kind != STRAIT_VALUE_STRING) return unfit(name, first);
    if (strcmp(name, "strip") == 0)
        *out = strip(v, first, 1, 1);
    else if (strcmp(name, "lstrip") == 0)
        *out = strip(v, first, 1, 0);
    else if (strcmp(name, "rstrip") == 0)
        *out = strip(v, first, 0, 1);
    else if (strcmp(name, "startswith") == 0)
        *out = strait_value_bool(begins(v, first, 0));
    else if (strcmp(name, "endswith") == 0)
        *out = strait_value_bool(begins(v, first, 1));
    else if (strcmp(name, "split") == 0)
        return split(r, v, first, out);
    else if (strcmp(name, "replace") == 0)
        return replace(r, v, a, out);
    else if (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0 ||
             strcmp(name, "title") == 0 || strcmp(name, "capitalize") == 0)
        return change_case(r, v, name[0], out);
    else
        return unknown("method", name);
    return STRAIT_OK;
}

/* ---- filters ---- */

/* As Python writes it: jansson's spaces are the same. Bytes of it are those of a message. */
static strait_err to_json(struct strait_render *r, const strait_value *v, strait_value *out) {
    char *copy = NULL;
    unsigned char *marks = NULL;
    if (v->json == NULL) return unfit("tojson", v);
    char *text = json_dumps(v->json, JSON_ENCODE_ANY);
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "chat template: tojson");
    const size_t n = strlen(text);
    strait_err err = strait_arena_alloc(&r->arena, n + 1, (void **)&copy);
    if (err == STRAIT_OK) err = strait_arena_alloc(&r->arena, n + 1, (void **)&marks);
    if (err == STRAIT_OK) {
        memcpy(copy, text, n + 1);
        memset(marks, 1, n);
        *out = strait_value_text(copy, n);
        out->marks = marks;
    }
    free(text);
    return err;
}

static int64_t length_of(const strait_value *v) {
    int64_t n = 0;
    if (v->kind != STRAIT_VALUE_STRING) return (int64_t)v->n;
    for (size_t i = 0; i < v->n; i++)
        n += ((unsigned char)v->text[i] & 0xc0) != 0x80;
    return n;
}

static const char *const filters[] = {"trim",  "tojson",     "length",  "count",   "first", "last",
                                      "join",  "string",     "default", "replace", "list",  "upper",
                                      "lower", "capitalize", "title",   NULL};

static strait_err list_filter(struct strait_render *r, const char *name, const strait_value *v,
                              const strait_arguments *a, strait_value *out) {
    if (v->kind != STRAIT_VALUE_LIST) return unfit(name, v);
    if (strcmp(name, "join") == 0) return join(r, v, argument(a, 0), out);
    if (strcmp(name, "list") == 0) *out = *v;
    if (strcmp(name, "first") == 0) *out = v->n > 0 ? v->items[0] : (strait_value){0};
    if (strcmp(name, "last") == 0) *out = v->n > 0 ? v->items[v->n - 1] : (strait_value){0};
    return STRAIT_OK;
}

strait_err strait_call_filter(struct strait_render *r, const char *name, const strait_value *v,
                              const strait_arguments *a, strait_value *out) {
    STRAIT_TRY(strait_render_count(r, 1 + (int64_t)(v->n / 64)));
    if (!strait_call_is_known(STRAIT_NODE_FILTER, name)) return unknown("filter", name);
    if (strcmp(name, "default") == 0) {
        const int is_used = v->kind == STRAIT_VALUE_UNDEFINED ||
                            (a->n > 1 && strait_value_is_true(&a->values[1]) &&
                             !strait_value_is_true(v));
        *out = is_used && a->n > 0 ? a->values[0] : *v;
        return STRAIT_OK;
    }
    if (strcmp(name, "tojson") == 0) return to_json(r, v, out);
    if (strcmp(name, "string") == 0) return strait_value_string(r, v, out);
    if (strcmp(name, "length") == 0 || strcmp(name, "count") == 0) {
        if (v->kind < STRAIT_VALUE_STRING) return unfit(name, v);
        *out = strait_value_int(length_of(v));
        return STRAIT_OK;
    }
    if (strcmp(name, "trim") == 0) return strait_call_method(r, "strip", v, a, out);
    if (strait_call_is_known(STRAIT_NODE_METHOD, name))
        return strait_call_method(r, name, v, a, out);
    return list_filter(r, name, v, a, out);
}

/* ---- functions and tests ---- */

static strait_err make_namespace(struct strait_render *r, const strait_arguments *a,
                                 strait_value *out) {
    enum {
        CAPACITY = 16 // members, those that are set later included
    };
    STRAIT_TRY(strait_value_list(r, CAPACITY, out));
    STRAIT_TRY(strait_arena_alloc(&r->arena, CAPACITY * sizeof *out->keys, (void **)&out->keys));
    out->kind = STRAIT_VALUE_DICT;
    out->number = 1;
    for (int i = 0; i < CAPACITY; i++)
        out->keys[i] = i < a->n && a->names[i] != NULL ? a->names[i] : "";
    for (int i = 0; i < a->n; i++)
        out->items[i] = a->values[i];
    return STRAIT_OK;
}

static strait_err make_range(struct strait_render *r, const strait_arguments *a,
                             strait_value *out) {
    for (int i = 0; i < a->n; i++)
        if (a->values[i].kind != STRAIT_VALUE_INT) return unfit("range", &a->values[i]);
    const int64_t first = a->n > 1 ? a->values[0].number : 0;
    const int64_t end = a->n > 1 ? a->values[1].number : a->n == 1 ? a->values[0].number : 0;
    if (a->n > 2) return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: range with three arguments");
    const int64_t n = end > first ? end - first : 0;
    if (n > RANGE_MAX) return STRAIT_FAIL(STRAIT_EDATA, "chat template: range is too long");
    STRAIT_TRY(strait_value_list(r, (size_t)n, out));
    for (int64_t i = 0; i < n; i++)
        out->items[i] = strait_value_int(first + i);
    return STRAIT_OK;
}

static const char *const functions[] = {"namespace", "raise_exception", "range", NULL};

strait_err strait_call_function(struct strait_render *r, const char *name,
                                const strait_arguments *a, strait_value *out) {
    STRAIT_TRY(strait_render_count(r, 1));
    if (strcmp(name, "namespace") == 0) return make_namespace(r, a, out);
    if (strcmp(name, "range") == 0) return make_range(r, a, out);
    if (strcmp(name, "raise_exception") != 0) return unknown("function", name);
    const strait_value *text = argument(a, 0);
    const int n = text != NULL && text->kind == STRAIT_VALUE_STRING && text->n < 200 ? (int)text->n
                                                                                     : 0;
    return STRAIT_FAIL(STRAIT_EDATA, "the chat template refuses these messages: %.*s", n,
                       n > 0 ? text->text : "");
}

static const char *const tests[] = {"defined", "undefined", "none",   "string",   "true",
                                    "false",   "mapping",   "number", "iterable", "sequence",
                                    "boolean", "integer",   NULL};

strait_err strait_call_test(const char *name, const strait_value *v, int *out) {
    const int is_list = v->kind == STRAIT_VALUE_LIST || v->kind == STRAIT_VALUE_STRING ||
                        v->kind == STRAIT_VALUE_DICT;
    if (strcmp(name, "defined") == 0)
        *out = v->kind != STRAIT_VALUE_UNDEFINED;
    else if (strcmp(name, "undefined") == 0)
        *out = v->kind == STRAIT_VALUE_UNDEFINED;
    else if (strcmp(name, "none") == 0)
        *out = v->kind == STRAIT_VALUE_NONE;
    else if (strcmp(name, "string") == 0)
        *out = v->kind == STRAIT_VALUE_STRING;
    else if (strcmp(name, "mapping") == 0)
        *out = v->kind == STRAIT_VALUE_DICT;
    else if (strcmp(name, "integer") == 0)
        *out = v->kind == STRAIT_VALUE_INT;
    else if (strcmp(name, "number") == 0)
        *out = v->kind == STRAIT_VALUE_INT || v->kind == STRAIT_VALUE_BOOL;
    else if (strcmp(name, "boolean") == 0)
        *out = v->kind == STRAIT_VALUE_BOOL;
    else if (strcmp(name, "true") == 0)
        *out = v->kind == STRAIT_VALUE_BOOL && v->number;
    else if (strcmp(name, "false") == 0)
        *out = v->kind == STRAIT_VALUE_BOOL && !v->number;
    else if (strcmp(name, "iterable") == 0 || strcmp(name, "sequence") == 0)
        *out = is_list;
    else
        return unknown("test", name);
    return STRAIT_OK;
}

int strait_call_is_known(strait_node_kind kind, const char *name) {
    const char *const *known = kind == STRAIT_NODE_FILTER   ? filters
                               : kind == STRAIT_NODE_METHOD ? methods
                               : kind == STRAIT_NODE_TEST   ? tests
                                                            : functions;
    for (; *known != NULL; known++)
        if (strcmp(*known, name) == 0) return 1;
    return 0;
}
