#include "data/template/evaluate.h"

#include <string.h>

enum {
    DEPTH_MAX = 500 // of nested operands: bounds the stack
};

strait_value strait_template_lookup(struct strait_template_state *s, const char *name) {
    for (const struct strait_variable *v = s->variables; v != NULL; v = v->next) {
        if (strcmp(v->name, name) == 0) return v->value;
        s->r.n_left--; // the next operation finds that there were too many
    }
    return (strait_value){0};
}

static strait_err need_number(const strait_value *v) {
    if (v->kind == STRAIT_VALUE_INT || v->kind == STRAIT_VALUE_BOOL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "chat template: expected a number, found %s",
                       strait_value_kind_name(v));
}

static strait_err contains(struct strait_template_state *s, const strait_value *part,
                           const strait_value *whole, int *out) {
    STRAIT_TRY(strait_render_count(&s->r, 1 + (int64_t)(whole->n / 16)));
    *out = 0;
    if (whole->kind == STRAIT_VALUE_STRING && part->kind == STRAIT_VALUE_STRING)
        *out = strait_value_find(whole, part, 0) >= 0;
    else if (whole->kind == STRAIT_VALUE_DICT && part->kind == STRAIT_VALUE_STRING)
        *out = strait_value_member(whole, part->text).kind != STRAIT_VALUE_UNDEFINED;
    for (size_t i = 0; whole->kind == STRAIT_VALUE_LIST && i < whole->n && !*out; i++)
        *out = strait_value_equal(part, &whole->items[i]);
    return STRAIT_OK;
}

static strait_err add_lists(struct strait_template_state *s, const strait_value *a,
                            const strait_value *b, strait_value *out) {
    strait_value sum;
    STRAIT_TRY(strait_value_list(&s->r, a->n + b->n, &sum));
    for (size_t i = 0; i < sum.n; i++)
        sum.items[i] = i < a->n ? a->items[i] : b->items[i - a->n];
    *out = sum;
    return STRAIT_OK;
}

/* + - * // % on numbers; no template needs more than 32 bits. */
static strait_err compute(const char *op, const strait_value *a, const strait_value *b,
                          strait_value *out) {
    STRAIT_TRY(need_number(a));
    STRAIT_TRY(need_number(b));
    const int64_t x = a->number, y = b->number;
    if (x > INT32_MAX || x < INT32_MIN || y > INT32_MAX || y < INT32_MIN ||
        ((op[0] == '/' || op[0] == '%') && y <= 0))
        return STRAIT_FAIL(STRAIT_EDATA, "chat template: %lld %s %lld", (long long)x, op,
                           (long long)y);
    const int64_t rest = op[0] == '/' || op[0] == '%' ? (x % y + y) % y : 0;
    *out = strait_value_int(op[0] == '+'   ? x + y
                            : op[0] == '-' ? x - y
                            : op[0] == '*' ? x * y
                            : op[0] == '%' ? rest
                                           : (x - rest) / y);
    return STRAIT_OK;
}

static strait_err compare(const char *op, const strait_value *a, const strait_value *b,
                          strait_value *out) {
    int64_t order = 0;
    if (a->kind == STRAIT_VALUE_STRING && b->kind == STRAIT_VALUE_STRING) {
        const size_t n = a->n < b->n ? a->n : b->n;
        order = n > 0 ? memcmp(a->text, b->text, n) : 0;
        if (order == 0) order = (int64_t)a->n - (int64_t)b->n;
    } else {
        STRAIT_TRY(need_number(a));
        STRAIT_TRY(need_number(b));
        order = (a->number > b->number) - (a->number < b->number);
    }
    *out = strait_value_bool((op[0] == '<' && order < 0) || (op[0] == '>' && order > 0) ||
                             (op[1] == '=' && order == 0));
    return STRAIT_OK;
}

static strait_err binary(struct strait_template_state *s, const strait_node *node,
                         strait_value *out) {
    const char *op = node->text;
    strait_value a, b;
    int is_in = 0;
    STRAIT_TRY(strait_template_evaluate(s, node->a, &a));
    if (op[0] == 'o' || op[0] == 'a') { // or, and
        *out = a;
        return strait_value_is_true(&a) == (op[0] == 'o')
                   ? STRAIT_OK
                   : strait_template_evaluate(s, node->b, out);
    }
    STRAIT_TRY(strait_template_evaluate(s, node->b, &b));
    if (strcmp(op, "in") == 0) {
        STRAIT_TRY(contains(s, &a, &b, &is_in));
        *out = strait_value_bool(is_in);
        return STRAIT_OK;
    }
    if (op[1] == '=' && (op[0] == '=' || op[0] == '!')) {
        *out = strait_value_bool(strait_value_equal(&a, &b) == (op[0] == '='));
        return STRAIT_OK;
    }
    if (op[0] == '<' || op[0] == '>') return compare(op, &a, &b, out);
    if (op[0] == '~') {
        STRAIT_TRY(strait_value_string(&s->r, &a, &a));
        STRAIT_TRY(strait_value_string(&s->r, &b, &b));
    }
    const int is_sum = op[0] == '+' || op[0] == '~';
    if (is_sum && a.kind == STRAIT_VALUE_STRING && b.kind == STRAIT_VALUE_STRING)
        return strait_value_concat(&s->r, &a, &b, out);
    if (is_sum && a.kind == STRAIT_VALUE_LIST && b.kind == STRAIT_VALUE_LIST)
        return add_lists(s, &a, &b, out);
    return compute(op, &a, &b, out);
}

/* The byte at which character i of a string begins. */
static size_t byte_of(const strait_value *v, int64_t i) {
    size_t at = 0;
    for (; at < v->n; at++)
        if (((unsigned char)v->text[at] & 0xc0) != 0x80 && i-- == 0) break;
    return at;
}

static int64_t count_of(const strait_value *v) {
    int64_t n = 0;
    if (v->kind != STRAIT_VALUE_STRING) return (int64_t)v->n;
    for (size_t i = 0; i < v->n; i++)
        n += ((unsigned char)v->text[i] & 0xc0) != 0x80;
    return n;
}

static strait_err bound(struct strait_template_state *s, const strait_node *node, int64_t n,
                        int64_t otherwise, int64_t *out) {
    strait_value v;
    *out = otherwise;
    if (node == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_template_evaluate(s, node, &v));
    if (v.kind == STRAIT_VALUE_NONE) return STRAIT_OK;
    STRAIT_TRY(need_number(&v));
    *out = v.number < 0 ? v.number + n : v.number;
    *out = *out < 0 ? 0 : *out > n ? n : *out;
    return STRAIT_OK;
}

/* [first:end], or all of a list backwards, [::-1]. */
static strait_err slice(struct strait_template_state *s, const strait_node *node,
                        const strait_value *v, strait_value *out) {
    int64_t first = 0, end = 0, step = 1;
    const int64_t n = count_of(v);
    STRAIT_TRY(bound(s, node->b, n, 0, &first));
    STRAIT_TRY(bound(s, node->c, n, n, &end));
    if (node->d != NULL) {
        strait_value by;
        STRAIT_TRY(strait_template_evaluate(s, node->d, &by));
        STRAIT_TRY(need_number(&by));
        step = by.number;
    }
    const int is_reversed = step == -1 && node->b == NULL && node->c == NULL;
    if (step != 1 && !(is_reversed && v->kind == STRAIT_VALUE_LIST))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "chat template: of slices with a step only [::-1] of a list is "
                           "supported");
    if (end < first) end = first;
    STRAIT_TRY(strait_render_count(&s->r, 1 + n / 16));
    if (v->kind == STRAIT_VALUE_STRING) {
        const size_t from = byte_of(v, first);
        *out = strait_value_cut(v, from, byte_of(v, end) - from);
        return STRAIT_OK;
    }
    strait_value part;
    STRAIT_TRY(strait_value_list(&s->r, (size_t)(end - first), &part));
    for (int64_t i = 0; i < end - first; i++)
        part.items[i] = v->items[is_reversed ? n - 1 - i : first + i];
    *out = part;
    return STRAIT_OK;
}

static strait_err subscript(struct strait_template_state *s, const strait_node *node,
                            strait_value *out) {
    strait_value v, key;
    STRAIT_TRY(strait_template_evaluate(s, node->a, &v));
    STRAIT_TRY(strait_render_count(&s->r, (int64_t)(v.n / 8)));
    const int has_places = v.kind == STRAIT_VALUE_LIST || v.kind == STRAIT_VALUE_STRING;
    if (node->kind == STRAIT_NODE_SLICE && has_places) return slice(s, node, &v, out);
    if (node->kind == STRAIT_NODE_SLICE) return need_number(&v);
    STRAIT_TRY(strait_template_evaluate(s, node->b, &key));
    *out = (strait_value){0};
    if (v.kind == STRAIT_VALUE_DICT && key.kind == STRAIT_VALUE_STRING) {
        *out = strait_value_member(&v, key.text);
        return STRAIT_OK;
    }
    if (v.kind == STRAIT_VALUE_UNDEFINED)
        return STRAIT_FAIL(STRAIT_EDATA, "chat template: a member of an undefined value");
    STRAIT_TRY(need_number(&key));
    const int64_t n = count_of(&v), i = key.number < 0 ? key.number + n : key.number;
    if (!has_places || i < 0 || i >= n) return STRAIT_OK;
    if (v.kind == STRAIT_VALUE_LIST)
        *out = v.items[i];
    else
        *out = strait_value_cut(&v, byte_of(&v, i), byte_of(&v, i + 1) - byte_of(&v, i));
    return STRAIT_OK;
}

static strait_err member(struct strait_template_state *s, const strait_node *node,
                         strait_value *out) {
    strait_value v;
    STRAIT_TRY(strait_template_evaluate(s, node->a, &v));
    if (v.kind == STRAIT_VALUE_UNDEFINED)
        return STRAIT_FAIL(STRAIT_EDATA, "chat template: .%.30s of an undefined value", node->text);
    if (v.kind == STRAIT_VALUE_DICT) STRAIT_TRY(strait_render_count(&s->r, (int64_t)(v.n / 8)));
    *out = strait_value_member(&v, node->text);
    return STRAIT_OK;
}

static strait_err call(struct strait_template_state *s, const strait_node *node,
                       strait_value *out) {
    strait_arguments a = {0};
    strait_value v;
    for (const strait_node *arg = node->a; arg != NULL; arg = arg->next, a.n++) {
        if (a.n == (int)(sizeof a.values / sizeof *a.values))
            return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: %.30s has too many arguments",
                               node->text);
        STRAIT_TRY(strait_template_evaluate(s, arg, &a.values[a.n]));
        a.names[a.n] = arg->attribute;
    }
    if (node->kind == STRAIT_NODE_CALL) return strait_call_function(&s->r, node->text, &a, out);
    STRAIT_TRY(strait_template_evaluate(s, node->b, &v));
    if (node->kind == STRAIT_NODE_METHOD) return strait_call_method(&s->r, node->text, &v, &a, out);
    return strait_call_filter(&s->r, node->text, &v, &a, out);
}

static strait_err elements(struct strait_template_state *s, const strait_node *node,
                           strait_value *out) {
    size_t n = 0;
    for (const strait_node *e = node->a; e != NULL; e = e->next)
        n++;
    strait_value list;
    STRAIT_TRY(strait_value_list(&s->r, n, &list));
    n = 0;
    for (const strait_node *e = node->a; e != NULL; e = e->next)
        STRAIT_TRY(strait_template_evaluate(s, e, &list.items[n++]));
    *out = list;
    return STRAIT_OK;
}

static strait_err unary(struct strait_template_state *s, const strait_node *node,
                        strait_value *out) {
    strait_value v;
    STRAIT_TRY(strait_template_evaluate(s, node->a, &v));
    if (node->text[0] == 'n') {
        *out = strait_value_bool(!strait_value_is_true(&v));
        return STRAIT_OK;
    }
    STRAIT_TRY(need_number(&v));
    *out = strait_value_int(v.number > INT32_MIN ? -v.number : 0);
    return STRAIT_OK;
}

static strait_err choose(struct strait_template_state *s, const strait_node *node,
                         strait_value *out) {
    strait_value v;
    STRAIT_TRY(strait_template_evaluate(s, node->b, &v));
    *out = (strait_value){0};
    if (strait_value_is_true(&v)) return strait_template_evaluate(s, node->a, out);
    return node->c != NULL ? strait_template_evaluate(s, node->c, out) : STRAIT_OK;
}

static strait_err test(struct strait_template_state *s, const strait_node *node,
                       strait_value *out) {
    strait_value v;
    int is_true = 0;
    STRAIT_TRY(strait_template_evaluate(s, node->b, &v));
    STRAIT_TRY(strait_call_test(node->text, &v, &is_true));
    *out = strait_value_bool(is_true != (node->number != 0));
    return STRAIT_OK;
}

static strait_err evaluate_node(struct strait_template_state *s, const strait_node *node,
                                strait_value *out) {
    switch (node->kind) {
    case STRAIT_NODE_STRING: *out = strait_value_text(node->text, node->n); return STRAIT_OK;
    case STRAIT_NODE_INT: *out = strait_value_int(node->number); return STRAIT_OK;
    case STRAIT_NODE_CONST:
        *out = strait_value_bool(node->number == 2);
        if (node->number == 0) out->kind = STRAIT_VALUE_NONE;
        return STRAIT_OK;
    case STRAIT_NODE_NAME: *out = strait_template_lookup(s, node->text); return STRAIT_OK;
    case STRAIT_NODE_LIST: return elements(s, node, out);
    case STRAIT_NODE_UNARY: return unary(s, node, out);
    case STRAIT_NODE_BINARY: return binary(s, node, out);
    case STRAIT_NODE_CHOICE: return choose(s, node, out);
    case STRAIT_NODE_MEMBER: return member(s, node, out);
    case STRAIT_NODE_INDEX:
    case STRAIT_NODE_SLICE: return subscript(s, node, out);
    case STRAIT_NODE_TEST: return test(s, node, out);
    default: return call(s, node, out);
    }
}

strait_err strait_template_evaluate(struct strait_template_state *s, const strait_node *node,
                                    strait_value *out) {
    STRAIT_TRY(strait_render_count(&s->r, 1));
    if (++s->depth > DEPTH_MAX)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: an expression is nested too deeply");
    const strait_err err = evaluate_node(s, node, out);
    s->depth--;
    return err;
}
