#include "data/template/value.h"

#include <stdio.h>
#include <string.h>

strait_err strait_render_count(struct strait_render *r, int64_t n) {
    r->n_left -= n;
    if (r->n_left >= 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "the chat template takes too many operations with these messages");
}

strait_value strait_value_bool(int is_true) {
    return (strait_value){.kind = STRAIT_VALUE_BOOL, .number = is_true != 0};
}

strait_value strait_value_int(int64_t number) {
    return (strait_value){.kind = STRAIT_VALUE_INT, .number = number};
}

strait_value strait_value_text(const char *text, size_t n) {
    return (strait_value){.kind = STRAIT_VALUE_STRING, .text = text, .n = n};
}

strait_err strait_value_list(struct strait_render *r, size_t n, strait_value *out) {
    *out = (strait_value){.kind = STRAIT_VALUE_LIST, .n = n};
    STRAIT_TRY(strait_render_count(r, (int64_t)n));
    return strait_arena_alloc(&r->arena, n * sizeof *out->items + 1, (void **)&out->items);
}

/* A string of which every byte is marked. */
static strait_err marked(struct strait_render *r, const char *text, size_t n, strait_value *out) {
    unsigned char *marks = NULL;
    *out = strait_value_text(text, n);
    STRAIT_TRY(strait_arena_alloc(&r->arena, n + 1, (void **)&marks));
    memset(marks, 1, n);
    out->marks = marks;
    return STRAIT_OK;
}

static strait_err dict_of(struct strait_render *r, const json_t *json, int depth,
                          strait_value *out) {
    const char *key = NULL;
    json_t *member = NULL;
    size_t i = 0;
    STRAIT_TRY(strait_value_list(r, json_object_size(json), out));
    out->kind = STRAIT_VALUE_DICT;
    STRAIT_TRY(strait_arena_alloc(&r->arena, out->n * sizeof *out->keys + 1, (void **)&out->keys));
    json_object_foreach((json_t *)(uintptr_t)json, key, member) { // NOLINT: it does not change it
        out->keys[i] = key;
        STRAIT_TRY(strait_value_json(r, member, depth + 1, &out->items[i]));
        i++;
    }
    return STRAIT_OK;
}

strait_err strait_value_json(struct strait_render *r, const json_t *json, int depth,
                             strait_value *out) {
    *out = (strait_value){.kind = STRAIT_VALUE_NONE};
    if (depth > STRAIT_TEMPLATE_DEPTH)
        return STRAIT_FAIL(STRAIT_EDATA, "messages are nested too deeply");
    if (json_is_string(json))
        STRAIT_TRY(marked(r, json_string_value(json), json_string_length(json), out));
    if (json_is_integer(json)) *out = strait_value_int(json_integer_value(json));
    if (json_is_real(json)) *out = strait_value_int((int64_t)json_real_value(json));
    if (json_is_boolean(json)) *out = strait_value_bool(json_is_true(json));
    if (json_is_object(json)) STRAIT_TRY(dict_of(r, json, depth, out));
    if (json_is_array(json)) {
        STRAIT_TRY(strait_value_list(r, json_array_size(json), out));
        for (size_t i = 0; i < out->n; i++)
            STRAIT_TRY(strait_value_json(r, json_array_get(json, i), depth + 1, &out->items[i]));
    }
    out->json = json;
    return STRAIT_OK;
}

int strait_value_is_true(const strait_value *v) {
    switch (v->kind) {
    case STRAIT_VALUE_UNDEFINED:
    case STRAIT_VALUE_NONE: return 0;
    case STRAIT_VALUE_BOOL:
    case STRAIT_VALUE_INT: return v->number != 0;
    default: return v->n > 0;
    }
}

int strait_value_equal(const strait_value *a, const strait_value *b) {
    const int is_number = a->kind == STRAIT_VALUE_BOOL || a->kind == STRAIT_VALUE_INT;
    const int other_is = b->kind == STRAIT_VALUE_BOOL || b->kind == STRAIT_VALUE_INT;
    if (is_number && other_is) return a->number == b->number;
    if (a->kind != b->kind || a->n != b->n) return 0;
    if (a->kind == STRAIT_VALUE_STRING) return a->n == 0 || memcmp(a->text, b->text, a->n) == 0;
    if (a->kind != STRAIT_VALUE_LIST) return a->kind != STRAIT_VALUE_DICT || a->items == b->items;
    return a->items == b->items || a->n == 0; // lists are compared with themselves or with []
}

const char *strait_value_kind_name(const strait_value *v) {
    static const char *const names[] = {"undefined", "none",   "a truth value", "a number",
                                        "a string",  "a list", "an object"};
    return names[v->kind];
}

strait_value strait_value_member(const strait_value *v, const char *key) {
    for (size_t i = v->kind == STRAIT_VALUE_DICT ? v->n : 0; i-- > 0;)
        if (strcmp(v->keys[i], key) == 0) return v->items[i];
    return (strait_value){0};
}

strait_err strait_value_string(struct strait_render *r, const strait_value *v, strait_value *out) {
    char *text = NULL;
    if (v->kind == STRAIT_VALUE_STRING) {
        *out = *v;
        return STRAIT_OK;
    }
    if (v->kind == STRAIT_VALUE_LIST || v->kind == STRAIT_VALUE_DICT)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: %s as text is not supported; use tojson",
                           strait_value_kind_name(v));
    STRAIT_TRY(strait_arena_alloc(&r->arena, 24, (void **)&text));
    if (v->kind == STRAIT_VALUE_INT) (void)snprintf(text, 24, "%lld", (long long)v->number);
    if (v->kind == STRAIT_VALUE_BOOL) (void)snprintf(text, 24, v->number ? "True" : "False");
    if (v->kind == STRAIT_VALUE_NONE) (void)snprintf(text, 24, "None");
    *out = strait_value_text(text, strlen(text));
    return STRAIT_OK;
}

strait_err strait_value_concat(struct strait_render *r, const strait_value *a,
                               const strait_value *b, strait_value *out) {
    char *text = NULL;
    unsigned char *marks = NULL;
    const size_t n = a->n + b->n;
    STRAIT_TRY(strait_render_count(r, (int64_t)(n / 64)));
    STRAIT_TRY(strait_arena_alloc(&r->arena, n + 1, (void **)&text));
    if (a->n > 0) memcpy(text, a->text, a->n);
    if (b->n > 0) memcpy(text + a->n, b->text, b->n);
    *out = strait_value_text(text, n);
    if (a->marks == NULL && b->marks == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_arena_alloc(&r->arena, n + 1, (void **)&marks));
    if (a->marks != NULL && a->n > 0) memcpy(marks, a->marks, a->n);
    if (b->marks != NULL && b->n > 0) memcpy(marks + a->n, b->marks, b->n);
    out->marks = marks;
    return STRAIT_OK;
}

strait_value strait_value_cut(const strait_value *v, size_t first, size_t n) {
    strait_value part = strait_value_text(v->text + first, n);
    part.marks = v->marks != NULL ? v->marks + first : NULL;
    return part;
}

int64_t strait_value_find(const strait_value *v, const strait_value *part, size_t from) {
    for (size_t i = from; i + part->n <= v->n; i++)
        if (part->n == 0 || memcmp(v->text + i, part->text, part->n) == 0) return (int64_t)i;
    return -1;
}
