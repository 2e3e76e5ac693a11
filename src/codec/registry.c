/* registry.c - the list of codecs, and how one is found by name: the only place where codec names
 * are compared. */
#include "codec/codec.h"

#include <stdio.h>
#include <string.h>

/* Suffixes of the tables' symbols, one line per codec. Of tables with one name the first has the
 * default variant: context comes before strait. */
#define CODECS(X) \
    X(none)       \
    X(int8)       \
    X(int4)       \
    X(topk)       \
    X(lowrank)    \
    X(subspace)   \
    X(resbm)      \
    X(context)    \
    X(strait)

#define DECLARE(symbol) extern const struct strait_codec_ops strait_codec_##symbol;
#define TABLE(symbol)   &strait_codec_##symbol,

CODECS(DECLARE)

const struct strait_codec_ops *const strait_codecs[] = {CODECS(TABLE) NULL};

static int has_variant(const struct strait_codec_ops *ops, const char *variant) {
    for (int i = 0; ops->variants != NULL && ops->variants[i] != NULL; i++)
        if (strcmp(ops->variants[i], variant) == 0) return 1;
    return ops->variants == NULL && variant[0] == '\0';
}

const struct strait_codec_ops *strait_codec_find(const char *name, const char *variant) {
    for (int i = 0; strait_codecs[i] != NULL; i++)
        if (strcmp(strait_codecs[i]->name, name) == 0 &&
            (variant[0] == '\0' || has_variant(strait_codecs[i], variant)))
            return strait_codecs[i];
    return NULL;
}

const char *strait_codec_default_variant(const char *name) {
    const struct strait_codec_ops *ops = strait_codec_find(name, "");
    return ops != NULL && ops->variants != NULL ? ops->variants[0] : "";
}

/* The names and variants below may come from a peer or a checkpoint: they are cut to the length of
 * a valid name. */
static strait_err check_variant(const char *name, const char *variant) {
    if (strait_codec_find(name, variant) != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: there is no variant '%.*s'; the default is '%s'",
                       name, STRAIT_CODEC_NAME - 1, variant, strait_codec_default_variant(name));
}

strait_err strait_codec_check_name(const char *name, const char *variant) {
    if (strait_codec_find(name, "") != NULL) return check_variant(name, variant);
    char known[160] = "";
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        const size_t used = strlen(known);
        /* A name with several tables is listed once. */
        if (strait_codec_find(strait_codecs[i]->name, "") != strait_codecs[i]) continue;
        (void)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                       strait_codecs[i]->name);
    }
    return STRAIT_FAIL(STRAIT_ECONFIG, "there is no codec '%.*s'; choose one of %s, or auto",
                       STRAIT_CODEC_NAME - 1, name, known);
}
