#include "base/alloc.h"
#include "study/study_parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Keys of a variant that are not options of its runs. */
static const char *const variant_words[] = {"use",  "control", "is_control", "one_seed", "curve",
                                            "tune", "small",   "full",       "about",    NULL};

/* One point of an axis: its name in rows, and its options. */
typedef struct point {
    char label[STRAIT_STUDY_NAME];
    strait_strings sets;
} point;

/* The place of a row on all axes. */
typedef struct cell {
    char suffix[STRAIT_STUDY_NAME];
    strait_strings sets;
} cell;

typedef struct expansion {
    const strait_study_parser *parser;
    strait_study *study;
    cell *cells; // combinations of all axes; one without axes
    int n_cells;
    strait_strings user; // overrides of the command line
    strait_strings data; // of --data
} expansion;

/* ---- axes ---- */

static strait_err read_point(const expansion *e, const char *key, const strait_yaml_node *node,
                             point *out) {
    static const char *const words[] = {"name", NULL};
    const char *dot = strrchr(key, '.');
    if (node->kind == STRAIT_YAML_SCALAR) {
        (void)snprintf(out->label, sizeof out->label, "%.40s=%.40s", dot != NULL ? dot + 1 : key,
                       node->text);
        const strait_err err = strait_study_option(e->parser, key, node->text,
                                                   e->parser->source->folder, &out->sets);
        if (err != STRAIT_OK)
            strait_err_prefix("%s:%zu:%zu", e->parser->source->name, node->line, node->column);
        return err;
    }
    const strait_yaml_node *name = strait_yaml_tree_find(node, "name");
    if (node->kind != STRAIT_YAML_MAP || name == NULL || name->kind != STRAIT_YAML_SCALAR)
        return strait_study_fail(e->parser, node,
                                 "axes: expected a value, or a map with a name and options");
    (void)snprintf(out->label, sizeof out->label, "%.80s", name->text);
    return strait_study_options(e->parser, node, words, &out->sets);
}

/* Replaces the cells by their product with one more axis. */
static strait_err multiply(expansion *e, const char *key, const strait_yaml_node *list) {
    if (list->kind != STRAIT_YAML_LIST || list->n_items < 1 ||
        list->n_items * e->n_cells > STRAIT_STUDY_ROWS)
        return strait_study_fail(e->parser, list, "axes.%s: expected a list, and at most %d rows",
                                 key, STRAIT_STUDY_ROWS);
    void *memory = NULL;
    const int n = list->n_items * e->n_cells;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof(cell), "study", &memory));
    cell *product = memory;
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n && err == STRAIT_OK; i++) {
        const cell *from = &e->cells[i / list->n_items];
        point p = {0};
        err = read_point(e, key, &list->items[i % list->n_items], &p);
        if (err == STRAIT_OK) err = strait_strings_append(&product[i].sets, &from->sets);
        if (err == STRAIT_OK) err = strait_strings_append(&product[i].sets, &p.sets);
        (void)snprintf(product[i].suffix, sizeof product[i].suffix, "%.45s %.45s", from->suffix,
                       p.label);
        strait_strings_close(&p.sets);
    }
    for (int i = 0; i < e->n_cells; i++)
        strait_strings_close(&e->cells[i].sets);
    strait_alloc_free(e->cells);
    e->cells = product;
    e->n_cells = n;
    return err;
}

static strait_err read_axes(expansion *e) {
    const strait_yaml_node *axes = strait_study_pick(e->parser, "axes");
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(cell), "study", &memory));
    e->cells = memory;
    e->n_cells = 1;
    if (axes == NULL || (axes->kind == STRAIT_YAML_SCALAR && axes->text[0] == '\0'))
        return STRAIT_OK;
    if (axes->kind != STRAIT_YAML_MAP)
        return strait_study_fail(e->parser, axes, "axes: expected options with lists of values");
    for (int i = 0; i < axes->n_items; i++)
        STRAIT_TRY(multiply(e, axes->items[i].key, &axes->items[i]));
    return STRAIT_OK;
}

/* ---- tuning ---- */

/* Multiplies the choices by the values of one more option. */
static strait_err multiply_choices(const strait_study_parser *p, const strait_yaml_node *list,
                                   strait_strings *choices) {
    strait_strings product = {0};
    strait_err err = STRAIT_OK;
    if (list->kind != STRAIT_YAML_LIST || list->n_items < 1 || list->n_items * choices->n > 64)
        return strait_study_fail(p, list, "tune.%s: expected a list, and at most 64 trials",
                                 list->key);
    for (int i = 0; i < choices->n; i++) {
        for (int k = 0; k < list->n_items && err == STRAIT_OK; k++) {
            const strait_yaml_node *value = &list->items[k];
            strait_strings one = {0};
            err = strait_study_option(p, list->key, value->text != NULL ? value->text : "", NULL,
                                      &one);
            if (err != STRAIT_OK)
                strait_err_prefix("%s:%zu:%zu: tune", p->source->name, value->line, value->column);
            else
                err = strait_strings_format(&product, "%s%s%s", choices->items[i],
                                            choices->items[i][0] != '\0' ? " " : "", one.items[0]);
            strait_strings_close(&one);
        }
    }
    strait_strings_close(choices);
    *choices = product;
    return err;
}

/* "tune.steps=20" among the overrides replaces the steps of the file. */
static int64_t override_steps(const strait_study_source *source, int64_t steps) {
    for (int i = 0; i < source->n_sets; i++)
        if (strncmp(source->sets[i], "tune.steps=", 11) == 0)
            steps = strtoll(source->sets[i] + 11, NULL, 10);
    return steps;
}

static strait_err read_tune(const strait_study_parser *p, const strait_yaml_node *map,
                            strait_study_tune *out) {
    if (map == NULL || (map->kind == STRAIT_YAML_SCALAR &&
                        (map->text[0] == '\0' || strcmp(map->text, "none") == 0)))
        return STRAIT_OK;
    if (map->kind != STRAIT_YAML_MAP)
        return strait_study_fail(p, map, "tune: expected steps, and options with lists of values");
    const strait_yaml_node *shared = strait_study_pick(p, "tune"); // a variant may omit steps
    const strait_yaml_node *steps = strait_yaml_tree_find(map, "steps");
    if (steps == NULL && shared != NULL) steps = strait_yaml_tree_find(shared, "steps");
    out->steps = steps != NULL && steps->text != NULL ? strtoll(steps->text, NULL, 10) : 0;
    out->steps = override_steps(p->source, out->steps);
    if (out->steps < 1)
        return strait_study_fail(p, map, "tune.steps: expected a whole number from 1");
    STRAIT_TRY(strait_strings_add(&out->choices, ""));
    for (int i = 0; i < map->n_items; i++)
        if (strcmp(map->items[i].key, "steps") != 0)
            STRAIT_TRY(multiply_choices(p, &map->items[i], &out->choices));
    if (out->choices.n < 2) strait_strings_close(&out->choices); // nothing to choose from
    return STRAIT_OK;
}

/* ---- variants ---- */

/* The options of the named sets that a variant uses. */
static strait_err read_uses(const strait_study_parser *p, const strait_yaml_node *use,
                            strait_strings *out) {
    const strait_yaml_node *sets = strait_yaml_tree_find(&p->root, "sets");
    if (use == NULL) return STRAIT_OK;
    const int n = use->kind == STRAIT_YAML_LIST ? use->n_items : 1;
    for (int i = 0; i < n; i++) {
        const strait_yaml_node *item = use->kind == STRAIT_YAML_LIST ? &use->items[i] : use;
        const strait_yaml_node *set = item->kind == STRAIT_YAML_SCALAR && sets != NULL
                                          ? strait_yaml_tree_find(sets, item->text)
                                          : NULL;
        if (set == NULL)
            return strait_study_fail(p, item, "use: %s is not one of the sets of this file",
                                     item->text != NULL ? item->text : "this");
        STRAIT_TRY(strait_study_options(p, set, NULL, out));
    }
    return STRAIT_OK;
}

/* Options in the order in which later ones win; tuning and the seed follow when a run begins. */
static strait_err read_sets(const expansion *e, const strait_yaml_node *variant, const cell *c,
                            strait_strings *out) {
    const strait_study_parser *p = e->parser;
    const strait_yaml_node *own = p->size != NULL ? strait_yaml_tree_find(p->size, "run") : NULL;
    const char *size = p->source->size == STRAIT_STUDY_SMALL ? "small" : "full";
    STRAIT_TRY(strait_study_options(p, strait_yaml_tree_find(&p->root, "run"), NULL, out));
    STRAIT_TRY(strait_study_options(p, own, NULL, out));
    STRAIT_TRY(strait_strings_append(out, &e->data));
    STRAIT_TRY(read_uses(p, strait_yaml_tree_find(variant, "use"), out));
    STRAIT_TRY(strait_study_options(p, variant, variant_words, out));
    STRAIT_TRY(strait_study_options(p, strait_yaml_tree_find(variant, size), NULL, out));
    STRAIT_TRY(strait_strings_append(out, &c->sets));
    return strait_strings_append(out, &e->user);
}

static int is_set(const strait_yaml_node *variant, const char *key) {
    const strait_yaml_node *flag = strait_yaml_tree_find(variant, key);
    return flag != NULL && flag->text != NULL && strcmp(flag->text, "true") == 0;
}

static strait_err read_row(const expansion *e, const strait_yaml_node *variant, const cell *c,
                           strait_study_row *out) {
    const strait_study_parser *p = e->parser;
    const strait_yaml_node *control = strait_yaml_tree_find(variant, "control");
    const strait_yaml_node *tune = strait_yaml_tree_find(variant, "tune");
    const strait_yaml_node *curve = strait_yaml_tree_find(variant, "curve");
    if (control == NULL) control = strait_yaml_tree_find(&p->root, "control");
    if (strlen(variant->key) > 48)
        return strait_study_fail(p, variant, "the name of a variant has at most 48 letters");
    (void)snprintf(out->name, sizeof out->name, "%.48s%.46s", variant->key, c->suffix);
    if (control != NULL && control->text != NULL && control->text[0] != '\0' &&
        strcmp(control->text, variant->key) != 0)
        (void)snprintf(out->control, sizeof out->control, "%.48s%.46s", control->text, c->suffix);
    if (curve != NULL && curve->text != NULL)
        (void)snprintf(out->curve, sizeof out->curve, "%.48s%.46s", curve->text, c->suffix);
    out->is_control = is_set(variant, "is_control");
    out->has_one_seed = is_set(variant, "one_seed");
    STRAIT_TRY(read_tune(p, tune != NULL ? tune : strait_study_pick(p, "tune"), &out->tune));
    return read_sets(e, variant, c, &out->sets);
}

/* The control that a variant names, or that of the file; NULL: none. */
static const char *control_of(const strait_study_parser *p, const strait_yaml_node *variants,
                              const char *name) {
    const strait_yaml_node *variant = strait_yaml_tree_find(variants, name);
    const strait_yaml_node *own = variant != NULL ? strait_yaml_tree_find(variant, "control")
                                                  : NULL;
    const strait_yaml_node *control = own != NULL ? own
                                                  : strait_yaml_tree_find(&p->root, "control");
    return control != NULL ? control->text : NULL;
}

static int is_listed(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return 0;
}

/* Whether a variant was asked for, or is the control of one that is kept. */
static int is_wanted(const strait_study_parser *p, const strait_yaml_node *variants,
                     const char *name) {
    const strait_yaml_node *only = p->size != NULL ? strait_yaml_tree_find(p->size, "only") : NULL;
    const int n = p->source->n_only > 0 ? p->source->n_only : only != NULL ? only->n_items : 0;
    if (n == 0) return 1;
    for (int i = 0; i < n; i++) {
        const char *at = p->source->n_only > 0 ? p->source->only[i] : only->items[i].text;
        for (int depth = 0; at != NULL && depth < variants->n_items + 1; depth++) {
            if (strcmp(at, name) == 0) return 1;
            at = control_of(p, variants, at);
        }
    }
    return 0;
}

static strait_err add_variant(expansion *e, const strait_yaml_node *variant) {
    static const strait_yaml_node nothing = {.kind = STRAIT_YAML_MAP};
    strait_study *s = e->study;
    strait_yaml_node map = variant->kind == STRAIT_YAML_MAP ? *variant : nothing;
    if (variant->kind == STRAIT_YAML_LIST ||
        (variant->kind == STRAIT_YAML_SCALAR && variant->text[0] != '\0'))
        return strait_study_fail(e->parser, variant, "%s: expected a map of options", variant->key);
    map.key = variant->key;
    map.line = variant->line;
    map.column = variant->column;
    void *memory = s->rows;
    STRAIT_TRY(strait_alloc_grow(&memory, (size_t)s->n_rows, (size_t)(s->n_rows + e->n_cells),
                                 sizeof *s->rows, "study"));
    s->rows = memory;
    for (int i = 0; i < e->n_cells; i++) {
        strait_study_row *row = &s->rows[s->n_rows++]; // counted at once: close frees what it has
        STRAIT_TRY(read_row(e, &map, &e->cells[i], row));
        const strait_study_source *source = e->parser->source;
        row->is_retested = is_listed(map.key, source->retest, source->n_retest);
    }
    return STRAIT_OK;
}

/* A row without the control that it names could not be compared. */
static strait_err mark_controls(const strait_study_parser *p, strait_study *study) {
    for (int i = 0; i < study->n_rows; i++) {
        const char *name = study->rows[i].control;
        const int at = strait_study_find(study, name);
        if (name[0] != '\0' && at < 0)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s: %s: its control %s is not a variant",
                               p->source->name, study->rows[i].name, name);
        if (at >= 0) study->rows[at].is_control = 1;
    }
    return STRAIT_OK;
}

/* Options of the command line; "seeds" and "tune.steps" are read elsewhere. */
static strait_err read_user(expansion *e) {
    const strait_study_source *source = e->parser->source;
    char here[STRAIT_PATH_MAX];
    if (getcwd(here, sizeof here) == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "the current folder no longer exists");
    for (int i = 0; i < source->n_sets; i++) {
        const char *equals = strchr(source->sets[i], '=');
        char key[256];
        if (equals == NULL || (size_t)(equals - source->sets[i]) >= sizeof key)
            return STRAIT_FAIL(STRAIT_ECONFIG, "--set %.80s: expected section.key=value",
                               source->sets[i]);
        (void)snprintf(key, sizeof key, "%.*s", (int)(equals - source->sets[i]), source->sets[i]);
        if (strcmp(key, "seeds") == 0 || strcmp(key, "tune.steps") == 0) continue;
        const strait_err err = strait_study_option(e->parser, key, equals + 1, here, &e->user);
        if (err != STRAIT_OK) strait_err_prefix("--set");
        STRAIT_TRY(err);
    }
    if (source->data == NULL) return STRAIT_OK;
    char folder[STRAIT_PATH_MAX];
    if (realpath(source->data, folder) == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--data %s: no such folder", source->data);
    STRAIT_TRY(strait_strings_format(&e->data, "data.train=%s/train.bin", folder));
    STRAIT_TRY(strait_strings_format(&e->data, "data.valid=%s/valid.bin", folder));
    return strait_strings_format(&e->data, "data.tokenizer=%s/tokenizer.json", folder);
}

/* The command line may name only variants of the file. */
static strait_err check_names(const strait_yaml_node *variants, const char *flag,
                              const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (strait_yaml_tree_find(variants, names[i]) == NULL)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s %s: the study has no such variant", flag,
                               names[i]);
    return STRAIT_OK;
}

static strait_err expand(expansion *e) {
    const strait_study_parser *p = e->parser;
    const strait_yaml_node *variants = strait_yaml_tree_find(&p->root, "variants");
    if (variants == NULL || variants->kind != STRAIT_YAML_MAP || variants->n_items == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: variants: expected at least one, such as dense: {}",
                           p->source->name);
    STRAIT_TRY(read_user(e));
    STRAIT_TRY(read_axes(e));
    STRAIT_TRY(check_names(variants, "--only", p->source->only, p->source->n_only));
    STRAIT_TRY(check_names(variants, "--retest", p->source->retest, p->source->n_retest));
    if (p->source->n_retest > 0 && e->study->test_text[0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "--retest: the study has no test text");
    for (int i = 0; i < variants->n_items; i++)
        if (is_wanted(p, variants, variants->items[i].key))
            STRAIT_TRY(add_variant(e, &variants->items[i]));
    return mark_controls(p, e->study);
}

strait_err strait_study_expand(const strait_study_parser *parser, strait_study *study) {
    expansion e = {.parser = parser, .study = study};
    const strait_err err = expand(&e);
    for (int i = 0; i < e.n_cells; i++)
        strait_strings_close(&e.cells[i].sets);
    strait_alloc_free(e.cells);
    strait_strings_close(&e.user);
    strait_strings_close(&e.data);
    return err;
}
