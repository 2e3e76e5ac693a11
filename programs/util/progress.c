#include "progress.h"

#include "files.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    LINE_BYTES = 512
};

static const double show_seconds = 0.1;

/* Redrawing a line makes sense on a terminal only; logs get whole lines. */
void strait_progress_init(strait_progress *progress) {
    *progress = (strait_progress){.is_terminal = isatty(STDERR_FILENO)};
}

/* Cuts a line to the width of the terminal: a wrapped line could not be redrawn in place. */
static void keep_to_width(char line[LINE_BYTES]) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
        size.ws_col <= LINE_BYTES)
        line[size.ws_col - 1] = '\0';
}

/* Redrawing is limited to ten times per second: terminals over ssh are slow. */
void strait_progress_show(strait_progress *progress, int is_due, int is_final, const char *format,
                          ...) {
    const double now = strait_files_seconds();
    if (progress->is_terminal ? !is_final && now - progress->last < show_seconds : !is_due) return;
    progress->last = now;
    char line[LINE_BYTES] = "";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    progress->is_open = progress->is_terminal && !is_final;
    if (progress->is_open) keep_to_width(line);
    fprintf(stderr, "%s%s%s", progress->is_terminal ? "\r\033[K" : "", line,
            progress->is_open ? "" : "\n");
    (void)fflush(stderr);
}

/* Clears the redrawn line first; the next strait_progress_show draws it again below. */
void strait_progress_say(strait_progress *progress, const char *format, ...) {
    if (progress->is_open) fputs("\r\033[K", stderr);
    progress->is_open = 0;
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* Two units are enough: nobody needs the seconds of an hour. */
void strait_progress_duration(double seconds, char out[32]) {
    const long s = seconds < 0.0 ? 0 : (long)(seconds + 0.5);
    if (s >= 3600)
        (void)snprintf(out, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        (void)snprintf(out, 32, "%ldm%02lds", s / 60, s % 60);
    else
        (void)snprintf(out, 32, "%lds", s);
}

/* English only: messages of the program are not translated. */
const char *strait_progress_plural(int64_t n) {
    return n == 1 ? "" : "s";
}

/* One decimal below ten, so that 1.4 GiB is not shown as 1 GiB. */
void strait_progress_bytes(double bytes, char out[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024.0 && unit < 4; unit++)
        bytes /= 1024.0;
    (void)snprintf(out, 32, bytes < 10.0 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}
