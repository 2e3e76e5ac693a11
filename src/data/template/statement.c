/* statement.c - a template as text and tags: blocks of statements. */
#include "data/template/syntax.h"

#include <ctype.h>
#include <string.h>

/* The whole template while it is parsed. */
struct source {
    struct strait_arena *arena;
    const char *at, *end;
    int depth;
    int is_line_start;        // `at` is at the beginning of a line
    int trims;                // the next text loses the white space it begins with
    struct strait_parser tag; // the last tag, behind its first word
    const char *word;         // its first word; NULL: the template has ended
};

static int is_space(char c) {
    return isspace((unsigned char)c);
}

/* The first tag from `at` on, or the end. */
static const char *find_tag(const char *at, const char *end) {
    for (; at + 1 < end; at++)
        if (*at == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')) return at;
    return end;
}

/* Where a tag that begins at `at` is closed: strings may contain what closes it. NULL: nowhere. */
static const char *find_close(const char *at, const char *end, char kind) {
    const int last = kind == '{' ? '}' : kind;
    char quote = '\0';
    for (at += 2; at + 1 < end; at++) {
        if (quote != '\0') {
            if (*at == '\\')
                at++;
            else if (*at == quote)
                quote = '\0';
        } else if (kind != '#' && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (*at == last && at[1] == '}') {
            return at;
        }
    }
    return NULL;
}

/* Appends the text up to `tag`, without the white space that belongs to tags. */
static strait_err add_text(struct source *s, const char *tag, strait_node ***last) {
    const char *from = s->at, *to = tag;
    const int is_block = tag < s->end && tag[1] != '{';
    const int control = tag + 2 < s->end ? tag[2] : 0;
    while (s->trims && from < to && is_space(*from))
        from++;
    if (tag < s->end && control == '-') {
        while (to > from && is_space(to[-1]))
            to--;
    } else if (is_block && control != '+') { // lstrip_blocks
        const char *line = to;
        while (line > from && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line > from ? line[-1] == '\n' : s->is_line_start && from == s->at) to = line;
    }
    s->at = tag;
    if (from == to) return STRAIT_OK;
    struct strait_parser p = {.arena = s->arena};
    STRAIT_TRY(strait_node_new(&p, STRAIT_NODE_TEXT, *last));
    STRAIT_TRY(strait_node_text(&p, from, (size_t)(to - from), &(**last)->text));
    (**last)->n = (size_t)(to - from);
    *last = &(**last)->next;
    return STRAIT_OK;
}

/* Reads the tag at s->at into s->tag, and what follows it up to where text goes on. */
static strait_err read_tag(struct source *s, char *kind) {
    *kind = s->at[1];
    const char *close = find_close(s->at, s->end, *kind);
    if (close == NULL) return STRAIT_FAIL(STRAIT_EDATA, "chat template: a tag does not end");
    s->tag = (struct strait_parser){.arena = s->arena, .at = s->at + 2, .end = close};
    if (s->tag.at < close && (*s->tag.at == '-' || *s->tag.at == '+')) s->tag.at++;
    s->trims = close > s->tag.at && close[-1] == '-';
    if (s->trims) s->tag.end--;
    s->at = close + 2;
    s->is_line_start = 0;
    if (*kind == '{' || s->trims || s->at >= s->end || *s->at != '\n') return STRAIT_OK;
    s->at++; // trim_blocks
    s->is_line_start = 1;
    return STRAIT_OK;
}

static strait_err take_word(struct source *s) {
    const size_t n = strait_parse_peek_name(&s->tag);
    STRAIT_TRY(strait_node_text(&s->tag, s->tag.at, n, &s->word));
    s->tag.at += n;
    return STRAIT_OK;
}

static strait_err end_tag(struct strait_parser *p) {
    (void)strait_parse_peek_name(p); // skips white space
    if (p->at == p->end) return STRAIT_OK;
    const int n = p->end - p->at < 20 ? (int)(p->end - p->at) : 20;
    return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: \"%.*s\" is not supported here", n, p->at);
}

static strait_err parse_block(struct source *s, strait_node **out);

static strait_err wrong_end(const struct source *s, const char *wanted) {
    return STRAIT_FAIL(STRAIT_EDATA, "chat template: expected %s instead of %s", wanted,
                       s->word != NULL ? s->word : "the end");
}

static int is_word(const struct source *s, const char *word) {
    return s->word != NULL && strcmp(s->word, word) == 0;
}

static strait_err parse_if(struct source *s, strait_node *node) {
    int n_branches = 0;
    for (;;) {
        STRAIT_TRY(strait_parse_expression(&s->tag, &node->a));
        STRAIT_TRY(end_tag(&s->tag));
        STRAIT_TRY(parse_block(s, &node->b));
        if (!is_word(s, "elif")) break;
        if (++n_branches > STRAIT_TEMPLATE_DEPTH) return wrong_end(s, "endif");
        STRAIT_TRY(strait_node_new(&s->tag, STRAIT_NODE_IF, &node->c));
        node = node->c;
    }
    if (is_word(s, "else")) STRAIT_TRY(parse_block(s, &node->c));
    return is_word(s, "endif") ? STRAIT_OK : wrong_end(s, "endif");
}

static strait_err take_variable(struct strait_parser *p, const char **out) {
    const size_t n = strait_parse_peek_name(p);
    if (n == 0) return STRAIT_FAIL(STRAIT_EDATA, "chat template: expected a variable");
    STRAIT_TRY(strait_node_text(p, p->at, n, out));
    p->at += n;
    return STRAIT_OK;
}

static strait_err parse_for(struct source *s, strait_node *node) {
    STRAIT_TRY(take_variable(&s->tag, &node->text));
    if (strait_parse_accept(&s->tag, ","))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "chat template: for with several variables is not supported");
    if (!strait_parse_accept(&s->tag, "in")) return wrong_end(s, "in");
    s->tag.has_no_choice = 1;
    STRAIT_TRY(strait_parse_expression(&s->tag, &node->a));
    if (strait_parse_accept(&s->tag, "if")) STRAIT_TRY(strait_parse_expression(&s->tag, &node->d));
    STRAIT_TRY(end_tag(&s->tag));
    STRAIT_TRY(parse_block(s, &node->b));
    if (is_word(s, "else")) STRAIT_TRY(parse_block(s, &node->c));
    return is_word(s, "endfor") ? STRAIT_OK : wrong_end(s, "endfor");
}

static strait_err parse_set(struct source *s, strait_node *node) {
    STRAIT_TRY(take_variable(&s->tag, &node->text));
    if (strait_parse_accept(&s->tag, ".")) STRAIT_TRY(take_variable(&s->tag, &node->attribute));
    if (!strait_parse_accept(&s->tag, "="))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: set without = is not supported");
    STRAIT_TRY(strait_parse_expression(&s->tag, &node->a));
    return end_tag(&s->tag);
}

/* One statement whose first word is s->word. */
static strait_err parse_statement(struct source *s, strait_node **out) {
    static const struct {
        const char *word;
        strait_node_kind kind;
        strait_err (*parse)(struct source *s, strait_node *node);
    } statements[] = {{"if", STRAIT_NODE_IF, parse_if},
                      {"for", STRAIT_NODE_FOR, parse_for},
                      {"set", STRAIT_NODE_SET, parse_set}};
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (is_word(s, statements[i].word)) {
            STRAIT_TRY(strait_node_new(&s->tag, statements[i].kind, out));
            return statements[i].parse(s, *out);
        }
    return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: {%% %.20s %%} is not supported", s->word);
}

/* Whether the word ends a block. */
static int is_end(const struct source *s) {
    static const char *const words[] = {"elif", "else", "endif", "endfor"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(s, words[i])) return 1;
    return 0;
}

/* What transformers marks for training, as plain text. */
static int is_ignored(const struct source *s) {
    return is_word(s, "generation") || is_word(s, "endgeneration");
}

/* Statements up to the end of the block; s->word is then what ended it, or NULL. */
static strait_err parse_block(struct source *s, strait_node **out) {
    strait_node **last = out;
    if (++s->depth > STRAIT_TEMPLATE_DEPTH)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: statements are nested too deeply");
    for (;;) {
        char kind = 0;
        STRAIT_TRY(add_text(s, find_tag(s->at, s->end), &last));
        s->word = NULL;
        if (s->at == s->end) break;
        STRAIT_TRY(read_tag(s, &kind));
        if (kind == '#') continue;
        if (kind == '{') {
            STRAIT_TRY(strait_node_new(&s->tag, STRAIT_NODE_OUT, last));
            STRAIT_TRY(strait_parse_expression(&s->tag, &(*last)->a));
            STRAIT_TRY(end_tag(&s->tag));
            last = &(*last)->next;
            continue;
        }
        STRAIT_TRY(take_word(s));
        if (!is_word(s, "elif") && is_end(s)) STRAIT_TRY(end_tag(&s->tag));
        if (is_end(s)) break;
        if (is_ignored(s)) continue;
        STRAIT_TRY(parse_statement(s, last));
        last = &(*last)->next;
    }
    s->depth--;
    return STRAIT_OK;
}

strait_err strait_parse_template(struct strait_arena *arena, const char *text, size_t n,
                                 strait_node **out) {
    struct source s = {.arena = arena, .at = text, .end = text + n, .is_line_start = 1};
    if (n > 0 && text[n - 1] == '\n') s.end--; // as Jinja does unless told otherwise
    STRAIT_TRY(parse_block(&s, out));
    return s.word == NULL ? STRAIT_OK : wrong_end(&s, "the end");
}
