#include "base/error.h"

#include "base/text/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per thread, so that errors in stages that run as threads do not overwrite each other. */
static _Thread_local char detail[512];
static _Thread_local char where[128];

/* Without a default case the compiler reports a code that is missing. */
const char *strait_err_text(strait_err err) {
    switch (err) {
#define X(name, value, scope, text) \
    case STRAIT_##name: return text;
        STRAIT_ERR_MAP(X)
#undef X
    }
    return "unknown error";
}

strait_scope strait_err_scope(strait_err err) {
    switch (err) {
#define X(name, value, scope, text) \
    case STRAIT_##name: return STRAIT_SCOPE_##scope;
        STRAIT_ERR_MAP(X)
#undef X
    }
    /* A code of a newer peer is treated as the most serious kind. */
    return STRAIT_SCOPE_PROCESS;
}

const char *strait_err_detail(void) {
    return detail;
}

/* For developers; users get the detail alone. */
const char *strait_err_where(void) {
    return where;
}

void strait_err_note(const char *file, int line, const char *format, ...) {
    (void)snprintf(where, sizeof where, "%s:%d", file, line);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    strait_text_tame(detail); // the detail may quote files and peers
}

void strait_err_prefix(const char *format, ...) {
    char old[sizeof detail];
    memcpy(old, detail, sizeof old);
    va_list args;
    va_start(args, format);
    const int used = vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    /* A prefix that fills the buffer leaves nothing of the old detail. */
    if (used < 0 || (size_t)used >= sizeof detail) return;
    (void)snprintf(detail + used, sizeof detail - (size_t)used, ": %s", old);
    strait_text_tame(detail);
}
