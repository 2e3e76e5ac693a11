/* run_auto.c - link.codec.name auto as far as the options of a run decide it;
 * train/outlook/choose.h measures and chooses. */
#include "config/run_auto.h"

#include "codec/ladder.h"

#include <stdio.h>
#include <string.h>

enum {
    SETS = 6,
    SET_BYTES = STRAIT_RUN_PATH + 32
};

static const char section[] = "link.codec.";

/* The first given key that only some codecs have; NULL if all given keys are common. */
static const char *codec_key(const strait_run *run) {
    static const char *const free_keys[] = {"name", "ratio", "bytes_per_token", "rule",
                                            "chosen_for"};
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++) {
        const char *key = table->rows[i].key;
        int is_free = 0;
        if (!run->is_given[i] || strncmp(key, section, sizeof section - 1) != 0) continue;
        for (size_t k = 0; k < sizeof free_keys / sizeof *free_keys; k++)
            is_free |= strcmp(key + sizeof section - 1, free_keys[k]) == 0;
        if (!is_free) return key;
    }
    return NULL;
}

static void take_default(strait_run *run) {
    int n = 0;
    (void)snprintf(run->link.codec.name, sizeof run->link.codec.name, "%s",
                   strait_codec_ladder(&n)->name);
}

strait_err strait_run_resolve_codec(strait_run *run) {
    const char *key = codec_key(run);
    const int is_asked = strait_run_is_given(run, "link.codec.name");
    if (!strait_codec_is_auto(run->link.codec.name)) return STRAIT_OK;
    if (is_asked && key != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: link.codec.name auto chooses the codec; name one to set its "
                           "options, or limit auto by link.codec.ratio",
                           key);
    const int is_limited = run->link.codec.ratio > 0 || run->link.codec.bytes_per_token > 0;
    if (key != NULL ||
        (!is_asked && !is_limited && (run->stages.count < 2 || !strait_run_has_limits(run))))
        take_default(run);
    return STRAIT_OK;
}

int strait_run_is_auto(const strait_run *run) {
    return strait_codec_is_auto(run->link.codec.name);
}

int strait_run_is_unnamed(const strait_run *run) {
    return !strait_run_is_given(run, "link.codec.name") && codec_key(run) == NULL;
}

strait_err strait_run_default_to_auto(strait_run *run) {
    static const char *const sets[] = {"link.codec.name=auto"};
    if (run->stages.count < 2 || !strait_run_is_unnamed(run)) return STRAIT_OK;
    return strait_run_change(run, sets, 1);
}

strait_err strait_run_apply_rung(strait_run *run, const strait_codec_rung *rung,
                                 const char *chosen_for) {
    char texts[SETS][SET_BYTES];
    const char *sets[SETS];
    int n = 0;
    (void)snprintf(texts[n++], SET_BYTES, "link.codec.name=%s", rung->name);
    if (rung->variant[0] != '\0')
        (void)snprintf(texts[n++], SET_BYTES, "link.codec.variant=%s", rung->variant);
    /* A limit that the user gave is not the ratio of the choice. */
    if (rung->ratio > 0 || strait_run_is_given(run, "link.codec.ratio"))
        (void)snprintf(texts[n++], SET_BYTES, "link.codec.ratio=%g", rung->ratio);
    if (strait_run_is_given(run, "link.codec.bytes_per_token"))
        (void)snprintf(texts[n++], SET_BYTES, "link.codec.bytes_per_token=0");
    if (chosen_for[0] != '\0')
        (void)snprintf(texts[n++], SET_BYTES, "link.codec.chosen_for=%s", chosen_for);
    for (int i = 0; i < n; i++)
        sets[i] = texts[i];
    STRAIT_TRY(strait_run_change(run, sets, n));
    run->dropped[0] = '\0'; // what the program replaces is no news
    return STRAIT_OK;
}
