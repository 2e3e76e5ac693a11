/* template.c - opening and rendering templates: statements. */
#include "data/template/template.h"

#include "base/alloc.h"
#include "data/template/evaluate.h"

#include <string.h>

enum {
    TEXT_BYTES = 256 << 10, // the longest published ones have 20 KiB
    TREE_BYTES = 64 << 20,
    RENDER_BYTES = 64 << 20,
    OPERATIONS = 4000000
};

struct strait_template {
    struct strait_arena arena;
    strait_node *root;
};

static strait_err define(struct strait_template_state *s, const char *name, strait_value value) {
    struct strait_variable *v = NULL;
    STRAIT_TRY(strait_arena_alloc(&s->r.arena, sizeof *v, (void **)&v));
    *v = (struct strait_variable){name, value, s->variables};
    s->variables = v;
    return STRAIT_OK;
}

static strait_err assign_member(struct strait_template_state *s, const strait_node *node,
                                strait_value value) {
    const strait_value space = strait_template_lookup(s, node->text);
    for (size_t i = 0; space.kind == STRAIT_VALUE_DICT && space.number == 1 && i < space.n; i++) {
        const int is_free = space.keys[i][0] == '\0';
        if (!is_free && strcmp(space.keys[i], node->attribute) != 0) continue;
        space.keys[i] = node->attribute;
        space.items[i] = value;
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_EDATA, "chat template: %.30s is not a namespace with space for %.30s",
                       node->text, node->attribute);
}

/* ---- statements ---- */

static strait_err render_block(struct strait_template_state *s, const strait_node *block);

static strait_err put(struct strait_template_state *s, const strait_value *v) {
    static const unsigned char none[256];
    STRAIT_TRY(strait_render_count(&s->r, 1 + (int64_t)(v->n / 64)));
    if (s->text->n + v->n > RENDER_BYTES)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "the chat template writes more than %d MiB with these messages",
                           RENDER_BYTES >> 20);
    STRAIT_TRY(strait_buffer_append(s->text, v->text, v->n));
    if (v->marks != NULL) return strait_buffer_append(s->marks, v->marks, v->n);
    for (size_t i = 0; i < v->n; i += sizeof none)
        STRAIT_TRY(
            strait_buffer_append(s->marks, none, v->n - i < sizeof none ? v->n - i : sizeof none));
    return STRAIT_OK;
}

/* `loop`, as far as templates use it. */
static strait_err define_loop(struct strait_template_state *s, const strait_value *list, size_t i) {
    static const char *names[] = {"index",  "index0",   "first",   "last",
                                  "length", "previtem", "nextitem"};
    enum {
        MEMBERS = sizeof names / sizeof *names
    };
    strait_value loop;
    STRAIT_TRY(strait_value_list(&s->r, MEMBERS, &loop));
    loop.kind = STRAIT_VALUE_DICT;
    loop.keys = names;
    loop.items[0] = strait_value_int((int64_t)i + 1);
    loop.items[1] = strait_value_int((int64_t)i);
    loop.items[2] = strait_value_bool(i == 0);
    loop.items[3] = strait_value_bool(i + 1 == list->n);
    loop.items[4] = strait_value_int((int64_t)list->n);
    if (i > 0) loop.items[5] = list->items[i - 1];
    if (i + 1 < list->n) loop.items[6] = list->items[i + 1];
    return define(s, "loop", loop);
}

/* The elements for which the condition of a loop is true. */
static strait_err select_items(struct strait_template_state *s, const strait_node *node,
                               strait_value *list) {
    strait_value kept;
    STRAIT_TRY(strait_value_list(&s->r, list->n, &kept));
    kept.n = 0;
    struct strait_variable *before = s->variables;
    for (size_t i = 0; i < list->n; i++) {
        strait_value is_kept;
        STRAIT_TRY(define(s, node->text, list->items[i]));
        STRAIT_TRY(strait_template_evaluate(s, node->d, &is_kept));
        if (strait_value_is_true(&is_kept)) kept.items[kept.n++] = list->items[i];
        s->variables = before;
    }
    *list = kept;
    return STRAIT_OK;
}

/* What a loop sets is gone after each turn; that is why templates have namespaces. */
static strait_err render_for(struct strait_template_state *s, const strait_node *node) {
    strait_value list;
    STRAIT_TRY(strait_template_evaluate(s, node->a, &list));
    if (list.kind == STRAIT_VALUE_UNDEFINED || list.kind == STRAIT_VALUE_NONE)
        list = (strait_value){.kind = STRAIT_VALUE_LIST};
    if (list.kind != STRAIT_VALUE_LIST)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: a loop over %s is not supported",
                           strait_value_kind_name(&list));
    if (node->d != NULL) STRAIT_TRY(select_items(s, node, &list));
    struct strait_variable *before = s->variables;
    for (size_t i = 0; i < list.n; i++) {
        STRAIT_TRY(strait_render_count(&s->r, 1));
        STRAIT_TRY(define_loop(s, &list, i));
        STRAIT_TRY(define(s, node->text, list.items[i]));
        STRAIT_TRY(render_block(s, node->b));
        s->variables = before;
    }
    return list.n == 0 && node->c != NULL ? render_block(s, node->c) : STRAIT_OK;
}

static strait_err render_statement(struct strait_template_state *s, const strait_node *node) {
    strait_value v = {0};
    if (node->kind == STRAIT_NODE_TEXT) {
        v = strait_value_text(node->text, node->n);
        return put(s, &v);
    }
    if (node->kind == STRAIT_NODE_FOR) return render_for(s, node);
    STRAIT_TRY(strait_template_evaluate(s, node->a, &v));
    if (node->kind == STRAIT_NODE_OUT) {
        STRAIT_TRY(strait_value_string(&s->r, &v, &v));
        return put(s, &v);
    }
    if (node->kind == STRAIT_NODE_SET)
        return node->attribute != NULL ? assign_member(s, node, v) : define(s, node->text, v);
    const strait_node *block = strait_value_is_true(&v) ? node->b : node->c;
    return block != NULL ? render_block(s, block) : STRAIT_OK;
}

static strait_err render_block(struct strait_template_state *s, const strait_node *block) {
    for (; block != NULL; block = block->next)
        STRAIT_TRY(render_statement(s, block));
    return STRAIT_OK;
}

/* ---- opening, closing, rendering ---- */

/* Everything a template calls by name must be known when it is opened, not when a chat first comes
 * that way. Returns the first that is not, or NULL. */
static const strait_node *find_unknown(const strait_node *node) {
    for (; node != NULL; node = node->next) {
        const int is_call = node->kind >= STRAIT_NODE_CALL && node->kind <= STRAIT_NODE_TEST;
        const strait_node *parts[] = {node->a, node->b, node->c, node->d};
        if (is_call && !strait_call_is_known(node->kind, node->text)) return node;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            const strait_node *found = find_unknown(parts[i]);
            if (found != NULL) return found;
        }
    }
    return NULL;
}

static strait_err check_names(const strait_node *root) {
    static const char *const kinds[] = {"function", "method", "filter", "test"};
    const strait_node *node = find_unknown(root);
    if (node == NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: the %s %.30s is not supported",
                       kinds[node->kind - STRAIT_NODE_CALL], node->text);
}

strait_err strait_template_open(const char *text, size_t n, struct strait_template **out) {
    struct strait_template *t = NULL;
    if (n > TEXT_BYTES)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "chat template: more than %d KiB", TEXT_BYTES >> 10);
    STRAIT_TRY(strait_alloc(1, sizeof *t, "chat template", (void **)&t));
    t->arena.limit = TREE_BYTES;
    strait_err err = strait_parse_template(&t->arena, text, n, &t->root);
    if (err == STRAIT_OK) err = check_names(t->root);
    if (err != STRAIT_OK)
        strait_template_close(&t);
    else
        *out = t;
    return err;
}

void strait_template_close(struct strait_template **tmpl) {
    if (*tmpl == NULL) return;
    strait_arena_fini(&(*tmpl)->arena);
    strait_alloc_free(*tmpl);
    *tmpl = NULL;
}

static strait_err define_token(struct strait_template_state *s, const char *name,
                               const char *text) {
    return text != NULL ? define(s, name, strait_value_text(text, strlen(text))) : STRAIT_OK;
}

static strait_err render(struct strait_template_state *s, const strait_node *root,
                         const strait_template_input *input) {
    strait_value messages;
    STRAIT_TRY(strait_value_json(&s->r, input->messages, 0, &messages));
    STRAIT_TRY(define(s, "messages", messages));
    STRAIT_TRY(define(s, "add_generation_prompt", strait_value_bool(1)));
    STRAIT_TRY(define_token(s, "bos_token", input->bos_token));
    STRAIT_TRY(define_token(s, "eos_token", input->eos_token));
    return render_block(s, root);
}

strait_err strait_template_render(const struct strait_template *tmpl,
                                  const strait_template_input *input, strait_buffer *text,
                                  strait_buffer *marks) {
    struct strait_template_state s = {.text = text, .marks = marks};
    s.r.arena.limit = RENDER_BYTES;
    s.r.n_left = OPERATIONS;
    const strait_err err = render(&s, tmpl->root, input);
    strait_arena_fini(&s.r.arena);
    return err;
}
