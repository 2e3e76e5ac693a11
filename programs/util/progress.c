#include "progress.h"

#include "files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 512,
    SAID_BYTES = 4096
};

static const double show_seconds = 0.1;

/* Redrawing a line makes sense on a terminal only; logs get whole lines. */
void strait_progress_init(strait_progress *progress) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread changes the environment
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    const int is_terminal = isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
    *progress = (strait_progress){.is_terminal = is_terminal,
                                  .has_color = is_terminal &&
                                               (no_color == NULL || no_color[0] == '\0')};
}

int strait_progress_columns(void) {
    struct winsize size = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Cuts a line to the width of the terminal, because a wrapped line could not be redrawn in place:
 * at the end of the last field that fits, or else in the middle of the first one. */
static void keep_to_width(char line[LINE_BYTES]) {
    const int columns = strait_progress_columns();
    if (columns <= 1 || columns > LINE_BYTES || strlen(line) < (size_t)columns) return;
    int end = columns - 1;
    for (int i = end; i > 0; i--)
        if (line[i] == ' ' && line[i + 1] == ' ') {
            end = i;
            break;
        }
    line[end] = '\0';
}

/* UTC, so that logs of machines in several time zones can be merged. */
void strait_progress_date(double seconds, char out[32]) {
    struct timespec now = {.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    struct tm when;
    char text[24] = "";
    if (seconds == 0.0) (void)clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &when) != NULL) (void)strftime(text, sizeof text, "%FT%T", &when);
    (void)snprintf(out, 32, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

static void write_log(const strait_progress *progress, const char *line) {
    char date[32];
    if (progress->log == NULL) return;
    strait_progress_date(0.0, date);
    fprintf(progress->log, "%s %s\n", date, line);
    (void)fflush(progress->log);
}

/* Redrawing is limited to ten times per second: terminals over ssh are slow. */
void strait_progress_show(strait_progress *progress, int is_due, int is_final, const char *format,
                          ...) {
    const double now = strait_files_seconds();
    const int is_drawn = !progress->is_quiet &&
                         (progress->is_terminal ? is_final || now - progress->last >= show_seconds
                                                : is_due);
    char line[LINE_BYTES] = "";
    va_list args;
    if (!is_drawn && (!is_due || progress->log == NULL)) return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (is_due) write_log(progress, line);
    if (!is_drawn) return;
    progress->last = now;
    progress->is_open = progress->is_terminal && !is_final;
    if (progress->is_open) keep_to_width(line);
    fprintf(stderr, "%s%s%s", progress->is_terminal ? "\r\033[K" : "", line,
            progress->is_open ? "" : "\n");
    (void)fflush(stderr);
}

/* Clears the redrawn line first; the next strait_progress_show draws it again below. */
static void print_line(strait_progress *progress, const char *color, const char *line) {
    write_log(progress, line);
    if (progress->is_quiet > (color != NULL)) return;
    if (progress->is_open) fputs("\r\033[K", stderr);
    progress->is_open = 0;
    if (progress->has_color && color != NULL)
        fprintf(stderr, "%s%s\033[0m\n", color, line);
    else
        fprintf(stderr, "%s\n", line);
}

void strait_progress_say(strait_progress *progress, const char *format, ...) {
    char line[SAID_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print_line(progress, NULL, line);
}

void strait_progress_warn(strait_progress *progress, const char *format, ...) {
    char line[SAID_BYTES] = "note: ";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line + 6, sizeof line - 6, format, args);
    va_end(args);
    print_line(progress, "\033[33m", line);
}

/* Three digits: enough to see it grow. */
void strait_progress_count(double n, char out[32]) {
    static const char units[] = {'\0', 'k', 'M', 'G', 'T'};
    int unit = 0;
    for (; n >= 1000.0 && unit < 4; unit++)
        n /= 1000.0;
    (void)snprintf(out, 32,
                   unit == 0 || n >= 100.0 ? "%.0f%c"
                   : n >= 10.0             ? "%.1f%c"
                                           : "%.2f%c",
                   n, units[unit]);
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
