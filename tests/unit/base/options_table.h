/* options_table.h - a table with every kind of option, for the tests of base/options. */
#pragma once

#include "base/options/options.h"

typedef struct thing {
    char title[16];
    int64_t size;
    double share;
    int is_fast;
    int colour;
    char file[64];
    char parts[64];
    strait_option_ints cuts;
    double delay;
    double speed;
    int64_t memory;
    int64_t deep;
} thing;

static const char *const colours[] = {"red", "green", "dark-blue", NULL};

#define FIELD(field) STRAIT_OPTION_FIELD(thing, field)

static const strait_option rows[] = {
    {"title", STRAIT_OPTION_TEXT, FIELD(title), 0, 0, "none", NULL, "what to call it"},
    {"box.size", STRAIT_OPTION_INT, FIELD(size), 1, 64, "8", NULL, "how large"},
    {"box.share", STRAIT_OPTION_REAL, FIELD(share), -1, 0.5, "0.25", NULL, "how much of it"},
    {"box.fast", STRAIT_OPTION_BOOL, FIELD(is_fast), 0, 0, "false", NULL, "whether to hurry"},
    {"box.colour", STRAIT_OPTION_CHOICE, FIELD(colour), 0, 0, "red", colours, "of the lid"},
    {"box.file", STRAIT_OPTION_PATH, FIELD(file), 0, 0, "", NULL, "where"},
    {"box.parts", STRAIT_OPTION_PATHS, FIELD(parts), 0, 0, "", NULL, "where else"},
    {"link.cuts", STRAIT_OPTION_INTS, FIELD(cuts), 0, 99, "[]", NULL, "after which blocks"},
    {"link.emulate.delay", STRAIT_OPTION_DURATION, FIELD(delay), 0, 10, "0s", NULL, "one way"},
    {"link.emulate.speed", STRAIT_OPTION_RATE, FIELD(speed), 0, 0, "0bit", NULL, "each way"},
    {"link.memory", STRAIT_OPTION_BYTES, FIELD(memory), 0, 0, "0B", NULL, "at most"},
    {"link.deep", STRAIT_OPTION_INT, FIELD(deep), 0, 0, "0", NULL, "any number"},
};

static const char *const when_green[] = {"box.size=32", "box.share=-0.5", NULL};
static const char *const when_fast[] = {"link.deep=7", NULL};
static const char *const when_both[] = {"link.deep=9", NULL};
static const strait_option_preset presets[] = {
    {"box.colour", "green", when_green, NULL, NULL},
    {"box.fast", "true", when_fast, NULL, NULL},
    {"title", "swift", when_both, "box.fast", "true"},
};

static const strait_option_rename renames[] = {{"box.big", "box.size"}};

static const strait_options table = {.rows = rows,
                                     .n_rows = sizeof rows / sizeof *rows,
                                     .presets = presets,
                                     .n_presets = 3,
                                     .renames = renames,
                                     .n_renames = 1};

static inline strait_err load(const char *text, thing *out) {
    const strait_options_source source = {.name = "T.yaml", .text = text, .bytes = strlen(text)};
    return strait_options_load(&table, &source, out, NULL);
}

static inline strait_err load_set(const char *text, const char *set, thing *out) {
    const strait_options_source source = {.name = "T.yaml",
                                          .text = text,
                                          .bytes = strlen(text),
                                          .sets = &set,
                                          .n_sets = 1,
                                          .folder = "/data",
                                          .set_folder = "/here"};
    return strait_options_load(&table, &source, out, NULL);
}
