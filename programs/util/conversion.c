#include "conversion.h"

#include "files.h"
#include "signals.h"

static const double log_seconds = 10.0;

void strait_conversion_init(strait_conversion *conversion, const char *command) {
    const double now = strait_files_seconds();
    *conversion = (strait_conversion){.command = command, .start = now, .printed = now};
    strait_progress_init(&conversion->progress);
    strait_signals_listen(1);
}

void strait_conversion_say(void *conversion, const char *text) {
    strait_conversion *c = conversion;
    strait_progress_say(&c->progress, "%s", text);
}

/* The time that is left follows from the bytes so far: disks are steady enough. */
int strait_conversion_show(void *conversion, int64_t done, int64_t total) {
    strait_conversion *c = conversion;
    const double now = strait_files_seconds(), seconds = now - c->start;
    const int is_due = now - c->printed >= log_seconds;
    char so_far[32], all[32], left[32];
    if (done > 0 && seconds > 0.5) {
        strait_progress_bytes((double)done, so_far);
        strait_progress_bytes((double)total, all);
        strait_progress_duration(seconds * (double)(total - done) / (double)done, left);
        strait_progress_show(&c->progress, is_due, 0, "%s %3.0f%%  %s of %s  left %s", c->command,
                             100.0 * (double)done / (double)total, so_far, all, left);
        if (is_due) c->printed = now;
    }
    return strait_signals_count();
}
