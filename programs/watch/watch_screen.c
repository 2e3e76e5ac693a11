/* watch_screen.c - lays the figures of a run out on a terminal of any size. */
#include "base/text/text.h"
#include "progress.h"
#include "watch.h"
#include "watch_plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    LINE_BYTES = 4 * WATCH_PLOT_COLUMNS + 64,
    LABEL = 9, // columns left of a plot
    PLOT_LEAST = 4,
    NARROW = 60, // columns below which words are left out
    DATED = 120, // columns from which events have their date
    DATE = 11    // bytes of "2026-11-18T" before the time of an event
};

/* A screen being printed. */
struct screen {
    const strait_watch_look *look;
    int row;
};

/* Cuts a text at the width of the terminal, which would wrap it. Names come from workers: nothing
 * of them may control the terminal, and one without UTF-8 gets one '?' for each other character. */
static void fit(char *text, const strait_watch_look *look, int columns) {
    char *to = text;
    strait_text_tame(text);
    for (const char *c = text; !look->is_utf8 && *c != '\0'; c++)
        if (((unsigned char)*c & 0xc0) != 0x80) *to++ = (char)((unsigned char)*c < 0x80 ? *c : '?');
    if (!look->is_utf8) *to = '\0';
    text[strait_text_fit(text, columns)] = '\0';
}

__attribute__((format(printf, 3, 4))) static void put(struct screen *s, const char *color,
                                                      const char *format, ...) {
    char line[LINE_BYTES];
    va_list args;
    if (s->row >= s->look->rows - 1) return; // the last line is for the keys
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fit(line, s->look, s->look->columns);
    s->row++;
    if (s->look->has_color && color != NULL)
        printf("\x1b[%sm%s\x1b[0m\x1b[K\r\n", color, line);
    else
        printf("%s\x1b[K\r\n", line);
}

/* Leaves out the fields at the end of a line that do not fit, instead of cutting one. */
static void put_fields(struct screen *s, char *line) {
    const size_t n = strait_text_fit(line, s->look->columns);
    for (size_t i = n; line[n] != '\0' && i > 1; i--)
        if (line[i] == ' ' && line[i - 1] == ' ') {
            line[i - 1] = '\0';
            break;
        }
    put(s, NULL, "%s", line);
}

static void left_of(const strait_watch *w, char out[32]) {
    if (isfinite(w->seconds_left))
        strait_progress_duration(w->seconds_left, out);
    else
        (void)snprintf(out, 32, "?");
}

/* As in the progress line: what a narrow terminal keeps comes first. */
void strait_watch_line(const strait_watch *w, char *out, size_t capacity) {
    const strait_series *s = &w->follow.series;
    char left[32], tokens[32], valid[48] = "";
    if (!s->has_last) {
        /* A host that waits for workers has no name yet. */
        const char *name = w->name[0] != '\0' || w->folder == NULL ? w->name : w->folder;
        (void)snprintf(out, capacity, "%s: %s", name, w->phase);
        return;
    }
    left_of(w, left);
    strait_progress_count(s->last.tokens, tokens);
    if (s->has_last_valid)
        (void)snprintf(valid, sizeof valid, "  valid %.4f", s->last_valid.valid_loss);
    (void)snprintf(out, capacity, "step %.0f/%lld  loss %.4f  left %s%s  %s tokens  %.0f tok/s",
                   s->last.step, (long long)w->steps, s->last.loss, left, valid, tokens,
                   s->last.tokens_per_s);
}

static void put_head(struct screen *s, const strait_watch *w) {
    const strait_series *series = &w->follow.series;
    const strait_series_point *p = &series->last;
    char line[512], silence[32], bar[WATCH_PLOT_COLUMNS + 1];
    const double share = w->steps > 0 && series->has_last ? p->step / (double)w->steps : 0.0;
    put(s, "1", "%s  %s  %.0f%%%s", w->name, w->phase, 100.0 * share,
        s->look->is_paused ? "  (paused)" : "");
    strait_watch_line(w, line, sizeof line);
    put_fields(s, line);
    const int n = s->look->columns - 2 < WATCH_PLOT_COLUMNS ? s->look->columns - 2
                                                            : WATCH_PLOT_COLUMNS;
    for (int i = 0; i < n; i++)
        bar[i] = i < share * n ? '#' : '.';
    bar[n > 0 ? n : 0] = '\0';
    put(s, "34", "[%s]", bar);
    if (!series->has_last) return;
    (void)snprintf(line, sizeof line,
                   "limit %s  lr %.3g  norm %.3g  %.3g+%.3g bytes/token  %.3gx  bubble %.0f%%",
                   w->limit, p->learning_rate, p->grad_norm, p->forward_bytes_per_token,
                   p->backward_bytes_per_token, p->ratio_forward, 100.0 * p->bubble);
    put_fields(s, line);
    if (w->is_over || w->silence_s < 15.0 + 10.0 * p->seconds) return;
    strait_progress_duration(w->silence_s, silence);
    put(s, "33", "no step for %s: the run is stopped, or waits", silence);
}

static void axis_text(double value, int axis, char out[32]) {
    if (axis == 2)
        strait_progress_duration(value, out);
    else
        strait_progress_count(value, out);
}

static void put_plot(struct screen *s, const strait_watch *w, int rows) {
    static strait_watch_plot plot; // large
    static const char *const axes[] = {"steps", "tokens", "time"};
    const strait_watch_look *look = s->look;
    char text[4 * WATCH_PLOT_COLUMNS + 1], first[32], last[32];
    if (rows < PLOT_LEAST || look->columns < LABEL + 8) return;
    strait_watch_plot_fill(&plot, w, look, look->columns - LABEL, rows - 2);
    put(s, "1", "%s%s over %s", strait_watch_curve_name(look->curve),
        look->is_log ? " (log scale)" : "", axes[look->axis]);
    for (int i = 0; i < plot.rows; i++) {
        const double y = plot.y1 - (plot.y1 - plot.y0) * i / (plot.rows > 1 ? plot.rows - 1 : 1);
        strait_watch_plot_row(&plot, i, text);
        if (plot.has_points && (i == 0 || i == plot.rows - 1 || i == plot.rows / 2))
            put(s, "36", "%8.4g %s", look->is_log ? pow(10.0, y) : y, text);
        else
            put(s, "36", "%8s %s", "", text);
    }
    axis_text(plot.x0, look->axis, first);
    axis_text(plot.x1, look->axis, last);
    put(s, NULL, "%8s %s%*s", "", first, look->columns - LABEL - (int)strlen(first), last);
}

/* Who holds a stage: the workers of a swarm, or the number of replicas. Returns whether one of them
 * is gone. */
static int list_owners(const strait_watch *w, int stage, char *out, size_t capacity) {
    size_t used = 0;
    int is_gone = 0;
    out[0] = '\0';
    for (int i = 0; w->has_swarm && i < w->swarm.n_workers; i++) {
        const strait_status_worker *worker = &w->swarm.workers[i];
        if (worker->stage != stage || used + STRAIT_NAME_MAX + 16 > capacity) continue;
        used += (size_t)snprintf(out + used, capacity - used, "%s%s%s", used > 0 ? ", " : "",
                                 worker->name, worker->is_connected ? "" : " (gone)");
        is_gone |= !worker->is_connected;
    }
    if (!w->has_swarm && w->replicas[stage] > 1)
        (void)snprintf(out, capacity, "%d replicas", w->replicas[stage]);
    return is_gone;
}

static void put_stage(struct screen *s, const strait_watch *w, int i) {
    const strait_watch_stage *stage = &w->stages[i];
    const double all = stage->busy_s + stage->wait_s;
    const double busy = all > 0.0 ? 100.0 * stage->busy_s / all : 0.0;
    char owners[512];
    const int is_gone = list_owners(w, i, owners, sizeof owners);
    if (s->look->columns < NARROW)
        put(s, is_gone ? "31" : NULL, "stage %-2d %3.0f%%  %s", i, busy, owners);
    else
        put(s, is_gone ? "31" : NULL, "stage %-2d computes %3.0f%%  waits %3.0f%%  %s", i, busy,
            all > 0.0 ? 100.0 - busy : 0.0, owners);
}

/* The link from stage i to the next one. */
static void put_link(struct screen *s, const strait_watch *w, int i) {
    const strait_watch_stage *stage = &w->stages[i];
    const double per = w->follow.series.last.seconds;
    char forward[32], backward[32], lost[48] = "";
    if (i + 1 == w->n_stages || !(per > 0.0)) return;
    strait_progress_bytes(stage->forward_bytes / per, forward);
    strait_progress_bytes(stage->backward_bytes / per, backward);
    if (s->look->columns >= NARROW)
        (void)snprintf(lost, sizeof lost, "  lost %.1f%%, %.1f%%", 100.0 * stage->residual_forward,
                       100.0 * stage->residual_backward);
    put(s, "32", "  link %d  %s/s >  %s/s <%s", i, forward, backward, lost);
}

/* Stages, with the links between them where they leave the last stage on the screen. */
static void put_stages(struct screen *s, const strait_watch *w) {
    const int has_links = s->row + 2 * w->n_stages - 1 < s->look->rows;
    for (int i = 0; i < w->n_stages; i++) {
        put_stage(s, w, i);
        if (has_links) put_link(s, w, i);
    }
}

static void put_event(struct screen *s, const char *text) {
    const int is_dated = strlen(text) > DATE && text[DATE - 1] == 'T' && text[4] == '-';
    put(s, NULL, "%s", is_dated && s->look->columns < DATED ? text + DATE : text);
}

/* Spares and volunteers of a swarm: who has no stage. */
static void put_spares(struct screen *s, const strait_watch *w) {
    char line[512] = "";
    size_t used = 0;
    for (int i = 0; w->has_swarm && i < w->swarm.n_workers; i++) {
        if (w->swarm.workers[i].stage >= 0 || used + 80 > sizeof line) continue;
        used += (size_t)snprintf(line + used, sizeof line - used, "  %s", w->swarm.workers[i].name);
    }
    if (used > 0) put(s, NULL, "spares:%s", line);
}

void strait_watch_draw(const strait_watch *w, const strait_watch_look *look) {
    struct screen s = {.look = look};
    const int n_links = w->n_stages > 0 ? 2 * w->n_stages - 1 : 0;
    const int n_events = w->n_events < 4 ? w->n_events : 4;
    printf("\x1b[H");
    put_head(&s, w);
    /* The plot takes what stages and events leave, and at least a third. */
    int rows = look->rows - s.row - n_links - n_events - 3;
    if (rows < look->rows / 3) rows = look->rows / 3;
    put_plot(&s, w, rows);
    put_stages(&s, w);
    put_spares(&s, w);
    if (w->advice[0] != '\0') put(&s, "33", "%s", w->advice);
    for (int i = w->n_events - n_events; i < w->n_events; i++)
        put_event(&s, w->events[i]);
    char keys[] = "q quit  p pause  </> curve  ^/v axis  l log";
    if (look->columns < NARROW)
        (void)snprintf(keys, sizeof keys, "q quit  p pause  </> ^/v l plot");
    fit(keys, look, look->columns - 1);
    printf("\x1b[J%s", keys);
    (void)fflush(stdout);
}
