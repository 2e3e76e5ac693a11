#define PCRE2_CODE_UNIT_WIDTH 8

#include "data/tokenizer/pattern.h"

#include "base/alloc.h"
#include "data/buffer.h"

#include <pcre2.h>

enum {
    STACK_START = 32 << 10, // of the JIT, in bytes
    STACK_MAX = 1 << 20,    // beyond it the interpreter is used, which has no such limit
    ERROR_BYTES = 80        // of a pattern quoted in an error
};

struct strait_pattern {
    pcre2_code *code;
    int is_jit;
};

struct strait_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* PCRE2 allocates through these, so that tests of failing allocations cover it. */
static void *pcre_allocate(PCRE2_SIZE bytes, void *unused) {
    (void)unused;
    void *memory = NULL;
    return strait_alloc(bytes, 1, "pattern", &memory) == STRAIT_OK ? memory : NULL;
}

static void pcre_release(void *memory, void *unused) {
    (void)unused;
    strait_alloc_free(memory);
}

#define SPACES "\\p{Z}\\x09-\\x0d\\x85"
#define WORDS  "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"

/* Appends the PCRE2 equivalent of the escape source[0..2). */
static strait_err copy_escape(const char *source, int is_class, strait_buffer *out) {
    static const struct {
        char letter;
        const char *alone, *in_class; // NULL: has no equivalent
    } escapes[] = {
        {'s', "[" SPACES "]", SPACES},
        {'S', "[^" SPACES "]", NULL},
        {'w', "[" WORDS "]", WORDS},
        {'W', "[^" WORDS "]", NULL},
        {'h', NULL, NULL},
        {'H', NULL, NULL},
    };
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (escapes[i].letter != source[1]) continue;
        const char *text = is_class ? escapes[i].in_class : escapes[i].alone;
        if (text == NULL)
            return STRAIT_FAIL(STRAIT_EDATA, "\\%c%s is not supported", source[1],
                               is_class ? " inside [ ]" : "");
        return strait_buffer_append(out, text, strlen(text));
    }
    return strait_buffer_append(out, source, 2);
}

/* The length of the item at source[at] inside a class: 1, or that of [:name:]. */
static strait_err measure_in_class(const char *source, size_t n, size_t at, size_t *used) {
    const char next = (char)(at + 1 < n ? source[at + 1] : 0);
    if (source[at] == '[' && next == ':') {
        const char *end = memchr(source + at, ']', n - at);
        if (end != NULL) *used = (size_t)(end - source) - at + 1;
    } else if (source[at] == '[') {
        return STRAIT_FAIL(STRAIT_EDATA, "[ inside [ ] is not supported");
    } else if (source[at] == '&' && next == '&') {
        return STRAIT_FAIL(STRAIT_EDATA, "&& inside [ ] is not supported");
    }
    return STRAIT_OK;
}

/* Translates an Oniguruma pattern to PCRE2. A ] right after [ or [^ is a literal. */
static strait_err translate(const char *source, size_t n, strait_buffer *out) {
    size_t class_start = 0; // one past the [ of the class we are in; 0: in none
    for (size_t at = 0; at < n;) {
        size_t used = 1;
        if (source[at] == '\\' && at + 1 < n) {
            STRAIT_TRY(copy_escape(source + at, class_start != 0, out));
            at += 2;
            continue;
        }
        if (class_start == 0 && source[at] == '[') {
            used = at + 1 < n && source[at + 1] == '^' ? 2 : 1;
            class_start = at + used;
        } else if (class_start != 0 && source[at] == ']' && at != class_start) {
            class_start = 0;
        } else if (class_start != 0) {
            STRAIT_TRY(measure_in_class(source, n, at, &used));
        }
        STRAIT_TRY(strait_buffer_append(out, source + at, used));
        at += used;
    }
    return STRAIT_OK;
}

/* Options follow Oniguruma, for which the patterns of tokenizer.json are written: Unicode classes,
 * and ^ and $ at every line. */
static strait_err compile(const strait_buffer *source, struct strait_pattern *pattern) {
    pcre2_general_context *general = pcre2_general_context_create(pcre_allocate, pcre_release,
                                                                  NULL);
    pcre2_compile_context *context = general == NULL ? NULL
                                                     : pcre2_compile_context_create(
                                                           general); // NULL would mean malloc
    strait_err err = STRAIT_OK;
    if (context == NULL) {
        err = STRAIT_FAIL(STRAIT_ENOMEM, "pattern");
    } else {
        int error = 0;
        PCRE2_SIZE offset = 0;
        (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pattern->code = pcre2_compile(source->data, source->n,
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                          PCRE2_NEVER_BACKSLASH_C,
                                      &error, &offset, context);
        if (pattern->code == NULL && error == PCRE2_ERROR_HEAP_FAILED) {
            err = STRAIT_FAIL(STRAIT_ENOMEM, "pattern");
        } else if (pattern->code == NULL) {
            PCRE2_UCHAR text[128];
            (void)pcre2_get_error_message(error, text, sizeof text);
            err = STRAIT_FAIL(STRAIT_EDATA, "%s, near offset %zu", (const char *)text, offset);
        }
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return err;
}

/* Patterns are compiled to machine code where possible; splitting is the slowest part of encoding.
 */
strait_err strait_pattern_open(const char *source, size_t n, struct strait_pattern **out) {
    struct strait_pattern *pattern = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *pattern, "pattern", (void **)&pattern));
    strait_buffer translated = {0};
    strait_err err = translate(source, n, &translated);
    if (err == STRAIT_OK) err = compile(&translated, pattern);
    strait_alloc_free(translated.data);
    if (err == STRAIT_OK) {
        pattern->is_jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
        *out = pattern;
        return STRAIT_OK;
    }
    if (err == STRAIT_EDATA)
        strait_err_prefix("pattern \"%.*s\"", n < ERROR_BYTES ? (int)n : ERROR_BYTES, source);
    strait_pattern_close(&pattern);
    return err;
}

void strait_pattern_close(struct strait_pattern **pattern) {
    if (*pattern == NULL) return;
    pcre2_code_free((*pattern)->code);
    strait_alloc_free(*pattern);
    *pattern = NULL;
}

/* One per thread: a pattern is shared, but its scratch memory is not. */
strait_err strait_matcher_open(struct strait_matcher **out) {
    struct strait_matcher *matcher = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *matcher, "matcher", (void **)&matcher));
    pcre2_general_context *general = pcre2_general_context_create(pcre_allocate, pcre_release,
                                                                  NULL);
    if (general != NULL) {
        matcher->data = pcre2_match_data_create(1, general);
        matcher->context = pcre2_match_context_create(general);
        matcher->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, general);
        pcre2_general_context_free(general);
    }
    if (matcher->data == NULL || matcher->context == NULL) {
        strait_matcher_close(&matcher);
        return STRAIT_FAIL(STRAIT_ENOMEM, "pattern matcher");
    }
    if (matcher->stack != NULL) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    *out = matcher;
    return STRAIT_OK;
}

void strait_matcher_close(struct strait_matcher **matcher) {
    struct strait_matcher *m = *matcher;
    if (m == NULL) return;
    pcre2_jit_stack_free(m->stack);
    pcre2_match_context_free(m->context);
    pcre2_match_data_free(m->data);
    strait_alloc_free(m);
    *matcher = NULL;
}

strait_err strait_pattern_find(const struct strait_pattern *pattern, struct strait_matcher *matcher,
                               const unsigned char *text, size_t n, size_t from,
                               strait_match *out) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pattern->is_jit)
        rc = pcre2_jit_match(pattern->code, text, n, from, 0, matcher->data, matcher->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // also if there is no JIT: use the interpreter
        rc = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         matcher->data, matcher->context);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR reason[128];
        (void)pcre2_get_error_message(rc, reason, sizeof reason);
        return STRAIT_FAIL(STRAIT_EDATA, "the split pattern failed on a text of %zu bytes: %s", n,
                           (const char *)reason);
    }
    /* Offsets are clamped, so that a pattern of a user's file cannot make the caller read outside.
     */
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(matcher->data);
    *out = rc < 0 ? (strait_match){SIZE_MAX, SIZE_MAX} : (strait_match){ends[0], ends[1]};
    if (out->start > out->end) out->start = out->end; // \K may move the start past the end
    if (rc >= 0 && out->start < from) out->start = from;
    return STRAIT_OK;
}
