#include "study/study.h"

#include "base/alloc.h"
#include "study/study_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

strait_err strait_study_fail(const strait_study_parser *parser, const strait_yaml_node *node,
                             const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s:%zu:%zu: %s", parser->source->name, node->line,
                       node->column, text);
}

const strait_yaml_node *strait_study_pick(const strait_study_parser *parser, const char *key) {
    const strait_yaml_node *own = parser->size != NULL ? strait_yaml_tree_find(parser->size, key)
                                                       : NULL;
    return own != NULL ? own : strait_yaml_tree_find(&parser->root, key);
}

/* ---- options of runs ---- */

strait_err strait_study_option(const strait_study_parser *parser, const char *key, const char *text,
                               const char *folder, strait_strings *out) {
    const strait_option *option = strait_options_find(strait_run_options(), key);
    char shown[STRAIT_OPTION_TEXT_MAX];
    if (option == NULL) return strait_options_unknown(strait_run_options(), key);
    const strait_err err = strait_option_parse(option, text, folder, parser->scratch);
    if (err != STRAIT_OK) {
        strait_err_prefix("%s", key);
        return err;
    }
    /* Paths are shown with their folder; other values as the user wrote them. */
    const int is_path = option->kind == STRAIT_OPTION_PATH || option->kind == STRAIT_OPTION_PATHS;
    if (is_path) strait_options_show(option, parser->scratch, shown);
    return strait_strings_format(out, "%s=%s", key, is_path ? shown : text);
}

/* A list becomes the text that --set takes: "[1,2]" of numbers, "a,b" of paths. */
static strait_err list_text(const strait_study_parser *p, const strait_yaml_node *node,
                            const char *key, char out[STRAIT_OPTION_TEXT_MAX]) {
    const strait_option *option = strait_options_find(strait_run_options(), key);
    const int is_ints = option != NULL && option->kind == STRAIT_OPTION_INTS;
    size_t used = is_ints ? 1 : 0;
    out[0] = '[';
    out[used] = '\0';
    for (int i = 0; i < node->n_items; i++) {
        const strait_yaml_node *item = &node->items[i];
        if (item->kind != STRAIT_YAML_SCALAR ||
            used + strlen(item->text) + 4 > STRAIT_OPTION_TEXT_MAX)
            return strait_study_fail(p, item, "%s: expected a short list of plain values", key);
        used += (size_t)snprintf(out + used, STRAIT_OPTION_TEXT_MAX - used, "%s%s",
                                 i > 0 ? "," : "", item->text);
    }
    if (is_ints) (void)snprintf(out + used, STRAIT_OPTION_TEXT_MAX - used, "]");
    return STRAIT_OK;
}

static int is_word(const char *const *words, const char *key) {
    for (int i = 0; words != NULL && words[i] != NULL; i++)
        if (strcmp(words[i], key) == 0) return 1;
    return 0;
}

// NOLINTNEXTLINE(misc-no-recursion): the depth of the tree is bounded
static strait_err flatten(const strait_study_parser *p, const strait_yaml_node *map,
                          const char *prefix, const char *const *words, strait_strings *out) {
    for (int i = 0; i < map->n_items; i++) {
        const strait_yaml_node *item = &map->items[i];
        char key[STRAIT_OPTION_TEXT_MAX];
        char text[STRAIT_OPTION_TEXT_MAX];
        if (is_word(words, item->key)) continue;
        if (strlen(prefix) + strlen(item->key) > 200)
            return strait_study_fail(p, item, "a key of this length is not an option");
        (void)snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", item->key);
        if (item->kind == STRAIT_YAML_MAP) {
            STRAIT_TRY(flatten(p, item, key, NULL, out));
            continue;
        }
        if (item->kind == STRAIT_YAML_LIST) STRAIT_TRY(list_text(p, item, key, text));
        const strait_err err = strait_study_option(
            p, key, item->kind == STRAIT_YAML_LIST ? text : item->text, p->source->folder, out);
        if (err != STRAIT_OK)
            strait_err_prefix("%s:%zu:%zu", p->source->name, item->line, item->column);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

strait_err strait_study_options(const strait_study_parser *parser, const strait_yaml_node *map,
                                const char *const *words, strait_strings *out) {
    if (map == NULL) return STRAIT_OK;
    if (map->kind != STRAIT_YAML_MAP)
        return strait_study_fail(parser, map, "expected options such as train.steps: 100");
    return flatten(parser, map, "", words, out);
}

/* ---- the keys of the file ---- */

static strait_err read_seeds(const strait_study_parser *p, const strait_yaml_node *list,
                             strait_study_seeds *out) {
    if (list->kind != STRAIT_YAML_LIST || list->n_items < 1 || list->n_items > STRAIT_STUDY_SEEDS)
        return strait_study_fail(p, list, "seeds: expected a list of 1 to %d whole numbers",
                                 STRAIT_STUDY_SEEDS);
    out->n = 0;
    for (int i = 0; i < list->n_items; i++) {
        const strait_yaml_node *item = &list->items[i];
        char *end = NULL;
        const long long seed = item->text != NULL ? strtoll(item->text, &end, 10) : -1;
        if (end == NULL || end == item->text || *end != '\0' || seed < 0)
            return strait_study_fail(p, item, "seeds: expected whole numbers from 0");
        for (int k = 0; k < out->n; k++)
            if (out->items[k] == seed)
                return strait_study_fail(p, item, "seeds: %lld is given twice", seed);
        out->items[out->n++] = seed;
    }
    return STRAIT_OK;
}

static strait_err read_more_seeds(const strait_study_parser *p, strait_study *study) {
    static const char *const words[] = {"best", "seeds", NULL};
    const strait_yaml_node *map = strait_study_pick(p, "more_seeds");
    if (map == NULL || (map->kind == STRAIT_YAML_SCALAR && map->text[0] == '\0')) return STRAIT_OK;
    for (int i = 0; i < map->n_items; i++)
        if (!is_word(words, map->items[i].key != NULL ? map->items[i].key : ""))
            return strait_study_fail(p, &map->items[i], "more_seeds: expected best and seeds");
    const strait_yaml_node *best = strait_yaml_tree_find(map, "best");
    const strait_yaml_node *seeds = strait_yaml_tree_find(map, "seeds");
    if (map->kind != STRAIT_YAML_MAP || best == NULL || best->kind != STRAIT_YAML_SCALAR ||
        seeds == NULL)
        return strait_study_fail(p, map, "more_seeds: expected {best: N, seeds: [...]}");
    char *end = NULL;
    const long n = strtol(best->text, &end, 10);
    if (end == best->text || *end != '\0' || n < 0 || n > STRAIT_STUDY_ROWS)
        return strait_study_fail(p, best, "more_seeds.best: expected a whole number");
    study->n_best = (int)n;
    return read_seeds(p, seeds, &study->more);
}

/* A text of the file, or nothing. */
static strait_err read_text(const strait_study_parser *p, const char *key, char **out) {
    const strait_yaml_node *node = strait_study_pick(p, key);
    if (node == NULL) return STRAIT_OK;
    if (node->kind != STRAIT_YAML_SCALAR)
        return strait_study_fail(p, node, "%s: expected text", key);
    return strait_alloc_string(node->text, out);
}

static strait_err read_words(const strait_study_parser *p, const char *key, strait_strings *out) {
    const strait_yaml_node *list = strait_study_pick(p, key);
    if (list == NULL) return STRAIT_OK;
    for (int i = 0; i < list->n_items; i++) {
        if (list->kind != STRAIT_YAML_LIST || list->items[i].kind != STRAIT_YAML_SCALAR) break;
        STRAIT_TRY(strait_strings_add(out, list->items[i].text));
    }
    if (out->n > 0 && out->n == list->n_items) return STRAIT_OK;
    return strait_study_fail(p, list, "%s: expected a list of names", key);
}

/* A number of a map; 0 where it is missing or no number. */
static double number_of(const strait_yaml_node *map, const char *key) {
    const strait_yaml_node *node = strait_yaml_tree_find(map, key);
    return node != NULL && node->text != NULL ? strtod(node->text, NULL) : 0.0;
}

static strait_err read_time(const strait_study_parser *p, strait_study_time *out) {
    const strait_yaml_node *map = strait_study_pick(p, "time_to_loss");
    const strait_yaml_node *variants = strait_yaml_tree_find(&p->root, "variants");
    if (map == NULL) return STRAIT_OK;
    const strait_yaml_node *list = map->kind == STRAIT_YAML_MAP
                                       ? strait_yaml_tree_find(map, "against")
                                       : NULL;
    if (list == NULL || list->kind != STRAIT_YAML_LIST || list->n_items < 1 ||
        list->n_items > STRAIT_STUDY_AGAINST || map->n_items != 3)
        return strait_study_fail(p, map,
                                 "time_to_loss: expected {against: [1 to %d variants], stages: N, "
                                 "gflops: N}",
                                 STRAIT_STUDY_AGAINST);
    for (int i = 0; i < list->n_items; i++) {
        const char *name = list->items[i].text;
        if (name == NULL || variants == NULL || strait_yaml_tree_find(variants, name) == NULL)
            return strait_study_fail(p, &list->items[i], "time_to_loss: %s is not a variant",
                                     name != NULL ? name : "this");
        STRAIT_TRY(strait_strings_add(&out->against, name));
    }
    out->stages = (int)number_of(map, "stages");
    out->gflops = number_of(map, "gflops");
    if (out->stages >= 2 && out->stages <= 64 && out->gflops > 0.0) return STRAIT_OK;
    return strait_study_fail(p, map, "time_to_loss: expected 2 to 64 stages, and gflops above 0");
}

static strait_err find_test(const strait_study_parser *p, strait_study *study) {
    const strait_yaml_node *node = strait_study_pick(p, "test");
    if (node == NULL || node->kind != STRAIT_YAML_SCALAR || node->text[0] == '\0') {
        if (p->source->data == NULL) return STRAIT_OK;
        char path[STRAIT_PATH_MAX];
        STRAIT_TRY(strait_file_path(path, "%s/test.bin", p->source->data));
        return strait_file_exists(path) ? strait_file_path(study->test, "%s", path) : STRAIT_OK;
    }
    if (node->text[0] == '/' || p->source->folder == NULL)
        return strait_file_path(study->test, "%s", node->text);
    return strait_file_path(study->test, "%s/%s", p->source->folder, node->text);
}

static strait_err read_test(const strait_study_parser *p, strait_study *study) {
    STRAIT_TRY(find_test(p, study));
    if (!strait_file_exists(study->test)) return STRAIT_OK;
    return strait_hash_file(study->test, study->test_text);
}

static strait_err check_keys(const strait_study_parser *p, const strait_yaml_node *map,
                             const char *const *words, const char *expected) {
    for (int i = 0; i < map->n_items; i++)
        if (!is_word(words, map->items[i].key))
            return strait_study_fail(p, &map->items[i], "%s: unknown key; expected %s",
                                     map->items[i].key, expected);
    return STRAIT_OK;
}

/* Refuses what nobody would read: a misspelt key must not change a study silently. */
static strait_err check_file(strait_study_parser *p) {
    static const char *const top[] = {"name",         "about", "minutes",    "analysis", "columns",
                                      "series",       "seeds", "more_seeds", "control",  "test",
                                      "run",          "sets",  "variants",   "axes",     "tune",
                                      "time_to_loss", "small", "full",       NULL};
    static const char *const inner[] = {"run",  "seeds",      "axes", "tune",
                                        "only", "more_seeds", "test", NULL};
    static const char *const sizes[] = {"small", "full"};
    STRAIT_TRY(
        check_keys(p, &p->root, top,
                   "name, about, minutes, seeds, control, test, run, sets, axes, variants, tune, "
                   "more_seeds, time_to_loss, columns, series, small or full"));
    for (int i = 0; i < 2; i++) {
        const strait_yaml_node *map = strait_yaml_tree_find(&p->root, sizes[i]);
        if (map == NULL) continue;
        if (map->kind != STRAIT_YAML_MAP)
            return strait_study_fail(p, map, "%s: expected keys such as run", sizes[i]);
        STRAIT_TRY(check_keys(p, map, inner, "run, seeds, axes, tune, only, more_seeds or test"));
        if (i == (int)p->source->size) p->size = map;
    }
    return STRAIT_OK;
}

/* "seeds=1,2,3" among the overrides replaces the seeds of the file. */
static strait_err override_seeds(const char *text, strait_study_seeds *out) {
    out->n = 0;
    for (const char *at = text;; at++) {
        char *end = NULL;
        const long long seed = strtoll(at, &end, 10);
        if (end == at || seed < 0 || (*end != ',' && *end != '\0') || out->n == STRAIT_STUDY_SEEDS)
            return STRAIT_FAIL(STRAIT_ECONFIG, "seeds=%s: expected whole numbers such as 1,2,3",
                               text);
        out->items[out->n++] = seed;
        if (*end == '\0') return STRAIT_OK;
        at = end;
    }
}

/* How a step is divided changes its time and memory, and the last bits of its sums. */
static strait_err read_speed(const strait_study_parser *p, strait_strings *out) {
    static const char *const words[] = {"stages.microbatch", "stages.window", "device.threads",
                                        NULL};
    for (int i = 0; i < p->source->n_speed; i++) {
        const char *text = p->source->speed[i];
        char key[64];
        (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(text, "="), text);
        if (!is_word(words, key) || strchr(text, '=') == NULL)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "--speed %.80s: expected stages.microbatch=N, stages.window=N or "
                               "device.threads=N",
                               text);
        const strait_err err = strait_study_option(p, key, strchr(text, '=') + 1, NULL, out);
        if (err != STRAIT_OK) strait_err_prefix("--speed");
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static strait_err read_all(strait_study_parser *p, strait_study *study) {
    STRAIT_TRY(check_file(p));
    char *name = NULL;
    STRAIT_TRY(read_text(p, "name", &name));
    (void)snprintf(study->name, sizeof study->name, "%s", name != NULL ? name : "study");
    strait_alloc_free(name);
    STRAIT_TRY(read_text(p, "about", &study->about));
    STRAIT_TRY(read_text(p, "analysis", &study->analysis));
    if (study->analysis != NULL && strcmp(study->analysis, "bandwidth") != 0 &&
        strcmp(study->analysis, "stable-rank") != 0 && strcmp(study->analysis, "gap") != 0)
        return strait_study_fail(p, strait_study_pick(p, "analysis"),
                                 "analysis: expected bandwidth, gap or stable-rank");
    STRAIT_TRY(read_words(p, "columns", &study->columns));
    STRAIT_TRY(read_words(p, "series", &study->series));
    STRAIT_TRY(read_speed(p, &study->speed));
    STRAIT_TRY(read_time(p, &study->time));
    STRAIT_TRY(read_test(p, study));
    const strait_yaml_node *seeds = strait_study_pick(p, "seeds");
    study->seeds = (strait_study_seeds){{1}, 1};
    if (seeds != NULL) STRAIT_TRY(read_seeds(p, seeds, &study->seeds));
    STRAIT_TRY(read_more_seeds(p, study));
    for (int i = 0; i < p->source->n_sets; i++)
        if (strncmp(p->source->sets[i], "seeds=", 6) == 0) {
            STRAIT_TRY(override_seeds(p->source->sets[i] + 6, &study->seeds));
            study->more.n = 0;
        }
    return strait_study_expand(p, study);
}

strait_err strait_study_read(const strait_study_source *source, strait_study *out) {
    strait_study_parser parser = {.source = source};
    strait_study study = {0};
    void *scratch = NULL;
    strait_err err = strait_yaml_tree_read(source->name, source->text, source->bytes, &parser.root);
    if (err != STRAIT_OK) return err;
    STRAIT_TRY_GOTO(err, done, strait_alloc(1, sizeof(strait_run), "run", &scratch));
    parser.scratch = scratch;
    err = read_all(&parser, &study);
done:
    strait_alloc_free(scratch);
    strait_yaml_tree_close(&parser.root);
    if (err == STRAIT_OK)
        *out = study;
    else
        strait_study_close(&study);
    return err;
}

void strait_study_close(strait_study *study) {
    for (int i = 0; i < study->n_rows; i++) {
        strait_strings_close(&study->rows[i].sets);
        strait_strings_close(&study->rows[i].tune.choices);
    }
    strait_alloc_free(study->rows);
    strait_alloc_free(study->about);
    strait_alloc_free(study->analysis);
    strait_strings_close(&study->columns);
    strait_strings_close(&study->series);
    strait_strings_close(&study->speed);
    strait_strings_close(&study->time.against);
    *study = (strait_study){0};
}

int strait_study_find(const strait_study *study, const char *name) {
    for (int i = 0; i < study->n_rows; i++)
        if (strcmp(study->rows[i].name, name) == 0) return i;
    return -1;
}

int strait_study_has(const strait_study *study, const char *analysis) {
    return study->analysis != NULL && strcmp(study->analysis, analysis) == 0;
}
