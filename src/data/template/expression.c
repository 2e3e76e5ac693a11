/* expression.c - expressions of templates, by recursive descent; the weakest operator first. */
#include "data/template/syntax.h"

#include <ctype.h>
#include <string.h>

strait_err strait_node_new(struct strait_parser *p, strait_node_kind kind, strait_node **out) {
    STRAIT_TRY(strait_arena_alloc(p->arena, sizeof **out, (void **)out));
    (*out)->kind = kind;
    return STRAIT_OK;
}

strait_err strait_node_text(struct strait_parser *p, const char *text, size_t n, const char **out) {
    char *copy = NULL;
    STRAIT_TRY(strait_arena_alloc(p->arena, n + 1, (void **)&copy));
    if (n > 0) memcpy(copy, text, n);
    *out = copy;
    return STRAIT_OK;
}

static void skip_space(struct strait_parser *p) {
    while (p->at < p->end && isspace((unsigned char)*p->at))
        p->at++;
}

static int is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

size_t strait_parse_peek_name(struct strait_parser *p) {
    size_t n = 0;
    skip_space(p);
    if (p->at < p->end && isdigit((unsigned char)*p->at)) return 0;
    while (p->at + n < p->end && is_name(p->at[n]))
        n++;
    return n;
}

int strait_parse_accept(struct strait_parser *p, const char *token) {
    const size_t n = strlen(token);
    skip_space(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, token, n) != 0) return 0;
    if (is_name(token[0]) && p->at + n < p->end && is_name(p->at[n])) return 0;
    p->at += n;
    return 1;
}

static strait_err expected(const struct strait_parser *p, const char *what) {
    const int n = p->end - p->at < 20 ? (int)(p->end - p->at) : 20;
    return STRAIT_FAIL(STRAIT_EDATA, "chat template: expected %s at \"%.*s\"", what, n, p->at);
}

static strait_err expect(struct strait_parser *p, const char *token) {
    return strait_parse_accept(p, token) ? STRAIT_OK : expected(p, token);
}

/* A name as a text of its own, in *out. */
static strait_err take_name(struct strait_parser *p, const char **out) {
    const size_t n = strait_parse_peek_name(p);
    if (n == 0) return expected(p, "a name");
    STRAIT_TRY(strait_node_text(p, p->at, n, out));
    p->at += n;
    return STRAIT_OK;
}

static strait_err parse_string(struct strait_parser *p, strait_node *node) {
    const char quote = *p->at++;
    const char *end = p->at;
    while (end < p->end && *end != quote)
        end += *end == '\\' && end + 1 < p->end ? 2 : 1;
    if (end >= p->end) return STRAIT_FAIL(STRAIT_EDATA, "chat template: a string does not end");
    char *text = NULL;
    STRAIT_TRY(strait_arena_alloc(p->arena, (size_t)(end - p->at) + 1, (void **)&text));
    size_t n = 0;
    for (; p->at < end; p->at++) {
        char c = *p->at;
        if (c == '\\') {
            static const char letters[] = "ntr\\'\"", meanings[] = "\n\t\r\\'\"";
            const char *found = *++p->at != '\0' ? strchr(letters, *p->at) : NULL;
            if (found == NULL)
                return STRAIT_FAIL(STRAIT_ENOTSUP,
                                   "chat template: the escape \\%c is not supported", *p->at);
            c = meanings[found - letters];
        }
        text[n++] = c;
    }
    p->at = end + 1;
    node->text = text;
    node->n = n;
    return STRAIT_OK;
}

static strait_err parse_number(struct strait_parser *p, strait_node *node) {
    for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++) {
        if (node->number > INT32_MAX) return expected(p, "a smaller number");
        node->number = node->number * 10 + (*p->at - '0');
    }
    if (p->at + 1 < p->end && *p->at == '.' && isdigit((unsigned char)p->at[1]))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: numbers with a point are not supported");
    return STRAIT_OK;
}

/* Elements up to `close`; a keyword argument has its name in `attribute`. */
static strait_err parse_list(struct strait_parser *p, const char *close, strait_node **out) {
    strait_node **last = out;
    while (!strait_parse_accept(p, close)) {
        const char *start = p->at, *name = NULL;
        const size_t n = strait_parse_peek_name(p);
        if (n > 0) {
            STRAIT_TRY(take_name(p, &name));
            if (strait_parse_accept(p, "==") || !strait_parse_accept(p, "=")) {
                p->at = start;
                name = NULL;
            }
        }
        STRAIT_TRY(strait_parse_expression(p, last));
        (*last)->attribute = name;
        last = &(*last)->next;
        if (strait_parse_accept(p, ",")) continue;
        STRAIT_TRY(expect(p, close));
        break;
    }
    return STRAIT_OK;
}

static strait_err parse_name(struct strait_parser *p, strait_node *node) {
    static const struct {
        const char *name;
        int64_t number;
    } constants[] = {{"none", 0},  {"None", 0}, {"false", 1},
                     {"False", 1}, {"true", 2}, {"True", 2}};
    STRAIT_TRY(take_name(p, &node->text));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (strcmp(node->text, constants[i].name) == 0) {
            node->kind = STRAIT_NODE_CONST;
            node->number = constants[i].number;
            return STRAIT_OK;
        }
    if (!strait_parse_accept(p, "(")) return STRAIT_OK;
    node->kind = STRAIT_NODE_CALL;
    return parse_list(p, ")", &node->a);
}

static strait_err parse_atom(struct strait_parser *p, strait_node **out) {
    skip_space(p);
    if (strait_parse_accept(p, "(")) {
        STRAIT_TRY(strait_parse_expression(p, out));
        return expect(p, ")");
    }
    if (strait_parse_accept(p, "{"))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: dictionaries are not supported");
    STRAIT_TRY(strait_node_new(p, STRAIT_NODE_NAME, out));
    if (p->at < p->end && (*p->at == '\'' || *p->at == '"')) {
        (*out)->kind = STRAIT_NODE_STRING;
        return parse_string(p, *out);
    }
    if (p->at < p->end && isdigit((unsigned char)*p->at)) {
        (*out)->kind = STRAIT_NODE_INT;
        return parse_number(p, *out);
    }
    if (strait_parse_accept(p, "[")) {
        (*out)->kind = STRAIT_NODE_LIST;
        return parse_list(p, "]", &(*out)->a);
    }
    return parse_name(p, *out);
}

/* Behind "[": an index, or a slice. */
static strait_err parse_subscript(struct strait_parser *p, strait_node *node) {
    node->kind = STRAIT_NODE_INDEX;
    if (!strait_parse_accept(p, ":")) {
        STRAIT_TRY(strait_parse_expression(p, &node->b));
        if (strait_parse_accept(p, "]")) return STRAIT_OK;
        STRAIT_TRY(expect(p, ":"));
    }
    node->kind = STRAIT_NODE_SLICE;
    if (strait_parse_accept(p, "]")) return STRAIT_OK;
    if (!strait_parse_accept(p, ":")) {
        STRAIT_TRY(strait_parse_expression(p, &node->c));
        if (strait_parse_accept(p, "]")) return STRAIT_OK;
        STRAIT_TRY(expect(p, ":"));
    }
    if (strait_parse_accept(p, "]")) return STRAIT_OK;
    STRAIT_TRY(strait_parse_expression(p, &node->d));
    return expect(p, "]");
}

/* Members, subscripts, calls and filters, which all follow their operand. */
static strait_err parse_postfix(struct strait_parser *p, strait_node **out) {
    STRAIT_TRY(parse_atom(p, out));
    for (int count = 0;; count++) {
        strait_node *inner = *out, *node = NULL;
        if (count > STRAIT_TEMPLATE_DEPTH) return expected(p, "a shorter expression");
        const int is_member = strait_parse_accept(p, ".");
        const int is_filter = !is_member && strait_parse_accept(p, "|");
        if (!is_member && !is_filter && !strait_parse_accept(p, "[")) return STRAIT_OK;
        STRAIT_TRY(strait_node_new(p, STRAIT_NODE_MEMBER, &node));
        *out = node;
        node->a = inner;
        if (!is_member && !is_filter) {
            STRAIT_TRY(parse_subscript(p, node));
            continue;
        }
        STRAIT_TRY(take_name(p, &node->text));
        const int has_arguments = strait_parse_accept(p, "(");
        if (is_member && !has_arguments) continue;
        node->kind = is_filter ? STRAIT_NODE_FILTER : STRAIT_NODE_METHOD;
        node->a = NULL;
        node->b = inner;
        if (has_arguments) STRAIT_TRY(parse_list(p, ")", &node->a));
    }
}

static strait_err parse_unary(struct strait_parser *p, strait_node **out) {
    if (!strait_parse_accept(p, "-")) return parse_postfix(p, out);
    STRAIT_TRY(strait_node_new(p, STRAIT_NODE_UNARY, out));
    (*out)->text = "-";
    return parse_postfix(p, &(*out)->a);
}

/* Binary operators by strength, the weakest first; each level is a list of operators. "-%}" ends a
 * tag, so the parser never sees its minus: the end of the text is before it. */
static const char *const levels[][8] = {
    {"or"}, {"and"}, {"==", "!=", "<=", ">=", "<", ">", "in"}, {"~"}, {"+", "-"}, {"*", "//", "%"}};
enum {
    LEVELS = sizeof levels / sizeof *levels,
    COMPARISON = 2
};

static strait_err parse_level(struct strait_parser *p, int level, strait_node **out);

static strait_err wrap(struct strait_parser *p, strait_node_kind kind, const char *text,
                       strait_node **out) {
    strait_node *left = *out;
    STRAIT_TRY(strait_node_new(p, kind, out));
    (*out)->text = text;
    (*out)->a = left;
    return STRAIT_OK;
}

/* "x is [not] test" and "x not in y". */
static strait_err parse_test(struct strait_parser *p, strait_node **out, int *is_one) {
    const char *start = p->at;
    *is_one = 1;
    if (strait_parse_accept(p, "is")) {
        STRAIT_TRY(wrap(p, STRAIT_NODE_TEST, NULL, out));
        (*out)->b = (*out)->a;
        (*out)->a = NULL;
        (*out)->number = strait_parse_accept(p, "not");
        return take_name(p, &(*out)->text);
    }
    if (strait_parse_accept(p, "not") && strait_parse_accept(p, "in")) {
        STRAIT_TRY(wrap(p, STRAIT_NODE_BINARY, "in", out));
        STRAIT_TRY(parse_level(p, COMPARISON + 1, &(*out)->b));
        return wrap(p, STRAIT_NODE_UNARY, "not", out);
    }
    p->at = start;
    *is_one = 0;
    return STRAIT_OK;
}

static strait_err parse_level(struct strait_parser *p, int level, strait_node **out) {
    if (level == LEVELS) return parse_unary(p, out);
    if (level == COMPARISON && strait_parse_accept(p, "not")) {
        STRAIT_TRY(strait_node_new(p, STRAIT_NODE_UNARY, out));
        (*out)->text = "not";
        if (++p->depth > STRAIT_TEMPLATE_DEPTH) return expected(p, "a shorter expression");
        const strait_err err = parse_level(p, level, &(*out)->a);
        p->depth--;
        return err;
    }
    STRAIT_TRY(parse_level(p, level + 1, out));
    for (int count = 0; count < STRAIT_TEMPLATE_DEPTH; count++) {
        const char *found = NULL;
        int is_test = 0;
        if (level == COMPARISON) STRAIT_TRY(parse_test(p, out, &is_test));
        for (int i = 0; !is_test && found == NULL && levels[level][i] != NULL; i++)
            if (strait_parse_accept(p, levels[level][i])) found = levels[level][i];
        if (is_test) continue;
        if (found == NULL) return STRAIT_OK;
        STRAIT_TRY(wrap(p, STRAIT_NODE_BINARY, found, out));
        STRAIT_TRY(parse_level(p, level + 1, &(*out)->b));
    }
    return expected(p, "a shorter expression");
}

strait_err strait_parse_expression(struct strait_parser *p, strait_node **out) {
    if (++p->depth > STRAIT_TEMPLATE_DEPTH) return expected(p, "a shorter expression");
    STRAIT_TRY(parse_level(p, 0, out));
    if (!p->has_no_choice && strait_parse_accept(p, "if")) {
        STRAIT_TRY(wrap(p, STRAIT_NODE_CHOICE, NULL, out));
        STRAIT_TRY(parse_level(p, 0, &(*out)->b));
        if (strait_parse_accept(p, "else")) STRAIT_TRY(strait_parse_expression(p, &(*out)->c));
    }
    p->depth--;
    return STRAIT_OK;
}
