#include "base/options/options.h"

#include "base/alloc.h"
#include "base/options/options_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Splits "a.b=c" into the row of its key and its value. */
static strait_err split_set(const strait_options *table, const char *set,
                            const strait_option **out_option, const char **out_text) {
    const char *equals = strchr(set, '=');
    char key[STRAIT_OPTION_TEXT_MAX];
    const size_t length = equals != NULL ? (size_t)(equals - set) : sizeof key;
    if (length >= sizeof key) return STRAIT_FAIL(STRAIT_ECONFIG, "expected section.key=value");
    memcpy(key, set, length);
    key[length] = '\0';
    const strait_option *option = strait_options_find(table, key);
    if (option == NULL && strait_option_section(table, key) != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s is a section; set a key of it, such as %s", key,
                           strait_option_section(table, key)->key);
    if (option == NULL) return strait_options_unknown(table, key);
    *out_option = option;
    *out_text = equals + 1;
    return STRAIT_OK;
}

/* Applies "a.b=c"; *out_row becomes the row it sets. */
static strait_err apply_set(const strait_options *table, const char *set, const char *folder,
                            void *object, int *out_row) {
    const strait_option *option = NULL;
    const char *text = NULL;
    strait_err err = split_set(table, set, &option, &text);
    if (err == STRAIT_OK) {
        *out_row = (int)(option - table->rows);
        err = strait_option_parse(option, text, folder, object);
    }
    if (err != STRAIT_OK) strait_err_prefix("%.80s", set);
    return err;
}

/* Whether a value of this kind may be quoted in a file. A quoted number is text to YAML, and
 * accepting it would hide a mistake. */
static int takes_quotes(strait_option_kind kind) {
    return strait_option_is_text(kind) || kind == STRAIT_OPTION_CHOICE ||
           kind == STRAIT_OPTION_DURATION || kind == STRAIT_OPTION_RATE ||
           kind == STRAIT_OPTION_BYTES;
}

static strait_err check_setting(const strait_setting *setting) {
    const strait_option_kind kind = setting->option->kind;
    if (setting->is_quoted && !takes_quotes(kind)) {
        char what[STRAIT_OPTION_TEXT_MAX];
        char quote[STRAIT_OPTION_QUOTE];
        strait_options_describe(setting->option, what);
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s is text, expected %s: drop the quotes",
                           strait_option_quote(setting->text, quote), what);
    }
    if (!setting->is_quoted && setting->text[0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "has no value");
    return STRAIT_OK;
}

/* The place in the file comes first, so that editors can jump to it. */
static strait_err apply_setting(const strait_setting *setting, const strait_options_source *source,
                                void *object) {
    strait_err err = check_setting(setting);
    if (err == STRAIT_OK)
        err = strait_option_parse(setting->option, setting->text, source->folder, object);
    if (err != STRAIT_OK)
        strait_err_prefix("%s:%zu:%zu: %s", source->name, setting->line, setting->column,
                          setting->option->key);
    return err;
}

/* A default that does not parse is an error in the table, not of the user. */
static void apply_defaults(const strait_options *table, void *object) {
    for (int i = 0; i < table->n_rows; i++) {
        const strait_err err = strait_option_parse(&table->rows[i], table->rows[i].initial, NULL,
                                                   object);
        assert(err == STRAIT_OK);
        (void)err;
    }
}

/* Compares text, so that presets work for options of every kind. */
static int is_chosen(const strait_options *table, const void *object, const char *key,
                     const char *choice) {
    const strait_option *option = strait_options_find(table, key);
    assert(option != NULL);
    char now[STRAIT_OPTION_TEXT_MAX];
    strait_options_show(option, object, now);
    return strcmp(now, choice) == 0;
}

/* Applies the presets of the values that the object has now. A preset whose key was only set by
 * another preset is applied as well if it comes later in the table. */
static void apply_presets(const strait_options *table, void *object) {
    for (int i = 0; i < table->n_presets; i++) {
        const strait_option_preset *preset = &table->presets[i];
        if (!is_chosen(table, object, preset->key, preset->choice)) continue;
        if (preset->also != NULL && !is_chosen(table, object, preset->also, preset->chosen))
            continue;
        for (int k = 0; preset->settings[k] != NULL; k++) {
            int row = 0;
            const strait_err err = apply_set(table, preset->settings[k], NULL, object, &row);
            assert(err == STRAIT_OK);
            (void)err;
        }
    }
}

/* Whether the file's setting belongs to another choice than the overrides make: to another codec,
 * whose bits would be refused. `chosen` is the override's value; NULL: there is none, or it is the
 * file's. */
static int is_dropped(const strait_options *table, const strait_setting *setting,
                      const char *chosen) {
    if (chosen == NULL || strcmp(setting->option->key, table->chooser) == 0) return 0;
    const size_t n = (size_t)(strrchr(table->chooser, '.') - table->chooser) + 1;
    return strncmp(setting->option->key, table->chooser, n) == 0;
}

/* The value that an override gives to table->chooser, if the file has another one. */
static const char *find_choice(const strait_options *table, const strait_options_source *source,
                               const strait_settings *list) {
    const char *chosen = NULL, *before = NULL;
    if (table->chooser == NULL) return NULL;
    const size_t n = strlen(table->chooser);
    for (int i = 0; i < source->n_sets; i++)
        if (strncmp(source->sets[i], table->chooser, n) == 0 && source->sets[i][n] == '=')
            chosen = source->sets[i] + n + 1;
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i].option->key, table->chooser) == 0) before = list->items[i].text;
    return chosen != NULL && before != NULL && strcmp(chosen, before) != 0 ? chosen : NULL;
}

/* Lists a key that was dropped, for people. */
static void note_dropped(const strait_options_source *source, const char *key) {
    char *out = source->dropped;
    const size_t used = out != NULL ? strlen(out) : 0;
    if (out == NULL || strstr(out, key) != NULL) return; // settings are applied more than once
    (void)snprintf(out + used, STRAIT_OPTIONS_DROPPED - used, "%s%s", used > 0 ? ", " : "", key);
}

/* Overrides come after the file, so they win. is_given records both, for run.yaml. */
static strait_err apply_user(const strait_options *table, const strait_options_source *source,
                             const strait_settings *list, void *object, unsigned char *is_given) {
    const char *chosen = find_choice(table, source, list);
    for (int i = 0; i < list->n; i++) {
        if (is_dropped(table, &list->items[i], chosen)) {
            note_dropped(source, list->items[i].option->key);
            continue;
        }
        STRAIT_TRY(apply_setting(&list->items[i], source, object));
        if (is_given != NULL) is_given[list->items[i].option - table->rows] = 1;
    }
    for (int i = 0; i < source->n_sets; i++) {
        int row = 0;
        STRAIT_TRY(apply_set(table, source->sets[i], source->set_folder, object, &row));
        if (is_given != NULL) is_given[row] = 1;
    }
    return STRAIT_OK;
}

/* The object is unusable after an error: it may hold a part of the settings. */
strait_err strait_options_load(const strait_options *table, const strait_options_source *source,
                               void *object, unsigned char *is_given) {
    strait_settings list = {NULL, 0};
    void *items = NULL;
    strait_err err = strait_alloc((size_t)table->n_rows, sizeof *list.items, "options", &items);
    if (err != STRAIT_OK) return err;
    list.items = items;
    STRAIT_TRY_GOTO(err, done, strait_option_read_yaml(table, source, &list));
    if (is_given != NULL) memset(is_given, 0, (size_t)table->n_rows);
    /* The user's settings are applied twice: first to learn which presets they choose, then over
     * the values of those presets. */
    apply_defaults(table, object);
    STRAIT_TRY_GOTO(err, done, apply_user(table, source, &list, object, is_given));
    if (table->n_presets > 0) {
        apply_presets(table, object);
        err = apply_user(table, source, &list, object, is_given);
    }
done:
    for (int i = 0; i < list.n; i++)
        strait_alloc_free(list.items[i].text);
    strait_alloc_free(list.items);
    return err;
}
