/* cmd_watch.c - strait watch FOLDER|URL: shows any run live in a terminal. */
#include "base/file.h"
#include "base/text/text.h"
#include "commands.h"
#include "progress.h"
#include "signals.h"
#include "watch.h"

#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000,
    SILENT_S = 15 // a busy host may miss a few of its updates, one per second
};

/* Scripts and tests want the state once; people want it live. */
static int is_once;

static const strait_flag flags[] = {
    {"once", 0, STRAIT_FLAG_SWITCH, &is_once, NULL, "print the current state once and stop"},
    {0},
};

/* ---- once ---- */

/* The key is shown because names are chosen by the workers and need not be unique. The column of
 * the stage has `columns`. */
static void show_worker(const strait_status_worker *m, int columns) {
    char sent[32], received[32], tokens[32], rate[32] = "", stage[64] = "spare";
    char name[STRAIT_NAME_MAX + 16];
    strait_text_cell(name, sizeof name, m->name, 16);
    strait_progress_bytes(m->sent_bytes, sent);
    strait_progress_bytes(m->received_bytes, received);
    strait_progress_count(m->tokens, tokens);
    if (m->stage >= 0) (void)snprintf(stage, sizeof stage, "stage %d", m->stage);
    if (m->stage >= 0 && m->n_replicas > 1)
        (void)snprintf(stage, sizeof stage, "stage %d, replica %d of %d", m->stage, m->replica,
                       m->n_replicas);
    /* On one machine a link has no rate that means anything. */
    if (m->up_bps < 2e10) (void)snprintf(rate, sizeof rate, "  %8.1f Mb/s", m->up_bps / 1e6);
    if (m->is_connected)
        printf("  %s %s  %-*s  %6.1f GFLOP/s  rtt %6.1f ms%s  sent %s  got %s  %s tokens "
               "contributed\n",
               name, m->key, columns, stage, m->flops / 1e9, 1e3 * m->rtt_s, rate, sent, received,
               tokens);
    else
        printf("  %s %s  %-*s  gone\n", name, m->key, columns, stage);
}

/* Workers with a stage come first, in the order of the pipeline; spares follow. */
static void show_swarm(const strait_watch *w) {
    const strait_status *s = &w->swarm;
    char ids[32];
    int columns = 8, most = 1;
    for (int i = 0; i < s->n_workers; i++)
        if (s->workers[i].n_replicas > most) most = s->workers[i].n_replicas;
    if (most > 1) columns = sizeof "stage 10, replica 1 of 2" - 1;
    strait_progress_bytes(s->ids_bytes, ids);
    printf("%s: %s, generation %lld, %d stages, %lld steps committed; %s of token ids sent, %lld "
           "connections refused\n",
           w->folder != NULL ? w->folder : w->name, w->is_over ? w->phase : s->phase,
           (long long)s->generation, s->n_stages, (long long)s->committed, ids,
           (long long)s->refused);
    if (s->has_audits)
        printf("  audits: %lld intervals right, %lld wrong (their workers are banned), %lld "
               "unsettled\n",
               (long long)s->approved, (long long)s->convicted, (long long)s->unsettled);
    for (int place = 0; place < s->n_stages * most; place++)
        for (int i = 0; i < s->n_workers; i++)
            if (s->workers[i].stage == place / most && s->workers[i].replica == place % most)
                show_worker(&s->workers[i], columns);
    for (int i = 0; i < s->n_workers; i++)
        if (s->workers[i].stage < 0) show_worker(&s->workers[i], columns);
}

/* A running host rewrites swarm.json every second: an old file means that nothing shown is live. */
static void show_silence(const char *folder) {
    char path[STRAIT_PATH_MAX], text[32];
    struct stat file;
    if (folder == NULL || strait_file_path(path, "%s/swarm.json", folder) != STRAIT_OK ||
        stat(path, &file) != 0)
        return;
    const double age = difftime(time(NULL), file.st_mtime);
    if (age < SILENT_S) return;
    strait_progress_duration(age, text);
    printf("no update for %s: the run has ended, or \"strait host\" must be restarted\n", text);
}

/* A run of "strait train": its stages may have replicas. */
static void show_stages(const strait_watch *w) {
    const int n = w->n_stages > 0 ? w->n_stages : 1;
    int n_replicas = 0;
    for (int i = 0; i < n; i++)
        n_replicas += w->replicas[i];
    printf("%s: %s, %d stage%s", w->folder != NULL ? w->folder : w->name, w->phase, n,
           strait_progress_plural(n));
    if (n_replicas > n) printf(", %d replicas in all", n_replicas);
    printf("\n");
}

static void show_once(const strait_watch *w) {
    char line[512];
    if (w->has_swarm)
        show_swarm(w);
    else
        show_stages(w);
    strait_watch_line(w, line, sizeof line);
    if (w->follow.series.has_last) printf("%s\n", line); // else the phase, which was printed
    for (int i = 0; i < w->n_events; i++)
        printf("%s\n", w->events[i]);
    show_silence(w->folder);
}

/* ---- live ---- */

static struct termios before; // what the terminal was like
static int is_raw;

/* Also at exit, so that an error message finds the terminal as it was. */
static void leave_screen(void) {
    if (!is_raw) return;
    is_raw = 0;
    printf("\x1b[?25h\x1b[?1049l");
    (void)fflush(stdout);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
}

static void enter_screen(void) {
    if (tcgetattr(STDIN_FILENO, &before) != 0) return;
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    is_raw = 1;
    (void)atexit(leave_screen);
    printf("\x1b[?1049h\x1b[?25l");
}

static void measure(strait_watch_look *look) {
    struct winsize size = {0};
    const int is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    look->columns = is_known ? size.ws_col : 80;
    look->rows = is_known ? size.ws_row : 24;
}

/* Returns 0 for a key that ends the watch. An arrow is ESC [ and a letter. */
static int take_keys(strait_watch_look *look) {
    char keys[64];
    const ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < n; i++) {
        const int is_arrow = keys[i] == '\x1b' && i + 2 < n && keys[i + 1] == '[';
        if (is_arrow) i += 2;
        const char key = keys[i];
        if (!is_arrow && key == 'q') return 0;
        if (!is_arrow && key == 'p') look->is_paused = !look->is_paused;
        if (!is_arrow && key == 'l') look->is_log = !look->is_log;
        if (is_arrow && key == 'C') look->curve = (look->curve + 1) % STRAIT_WATCH_CURVES;
        if (is_arrow && key == 'D')
            look->curve = (look->curve + STRAIT_WATCH_CURVES - 1) % STRAIT_WATCH_CURVES;
        if (is_arrow && key == 'A') look->axis = (look->axis + 1) % 3;
        if (is_arrow && key == 'B') look->axis = (look->axis + 2) % 3;
    }
    return 1;
}

/* A change of the window's size is noticed by asking for it ten times per second. */
static int wait_for_key(strait_watch_look *look) {
    for (int waited = 0; waited < LOOK_MS && strait_signals_count() == 0; waited += 100) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        strait_watch_look now = *look;
        if (poll(&input, 1, 100) == 1) return take_keys(look);
        measure(&now);
        if (now.columns != look->columns || now.rows != look->rows) return 1;
    }
    return strait_signals_count() == 0;
}

static strait_err watch_screen(strait_watch *w) {
    // NOLINTBEGIN(concurrency-mt-unsafe): watch has one thread
    const char *no_color = getenv("NO_COLOR");
    strait_watch_look look = {.has_color = no_color == NULL || no_color[0] == '\0',
                              .is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    // NOLINTEND(concurrency-mt-unsafe)
    char line[512];
    strait_err err = STRAIT_OK;
    enter_screen();
    do {
        if (!look.is_paused) err = strait_watch_refresh(w);
        if (err != STRAIT_OK) break;
        measure(&look);
        strait_watch_draw(w, &look);
    } while ((!w->is_over || look.is_paused) && wait_for_key(&look));
    leave_screen();
    strait_watch_line(w, line, sizeof line);
    if (err == STRAIT_OK) printf("%s: %s\n%s\n", w->name, w->phase, line);
    return err;
}

/* Not a terminal: one line per second at most, when there is something new. */
static strait_err watch_lines(strait_watch *w) {
    double shown = -1.0;
    char line[512];
    for (;;) {
        const double step = w->follow.series.has_last ? w->follow.series.last.step : 0.0;
        strait_watch_line(w, line, sizeof line);
        if (step != shown) printf("%s\n", line);
        shown = step;
        if (fflush(stdout) != 0)
            return STRAIT_FAIL(STRAIT_EIO, "standard output could not be written");
        if (w->is_over) break;
        const struct timespec nap = {.tv_sec = LOOK_MS / 1000};
        (void)nanosleep(&nap, NULL);
        if (strait_signals_count() > 0) return STRAIT_OK;
        STRAIT_TRY(strait_watch_refresh(w));
    }
    printf("%s: %s\n", w->name, w->phase);
    return STRAIT_OK;
}

/* Polls files or the page instead of connecting to workers: watching cannot disturb the run. */
static strait_err run_watch(int n_args, const char **args) {
    static strait_watch watch; // large
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_watch, "folder or address of a run", NULL, n_args,
                                      args));
    (void)setlocale(LC_CTYPE, ""); // NOLINT(concurrency-mt-unsafe): watch has one thread
    strait_signals_listen(1);
    strait_err err = strait_watch_open(args[0], &watch);
    if (err == STRAIT_OK && is_once)
        show_once(&watch);
    else if (err == STRAIT_OK)
        err = isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) ? watch_screen(&watch)
                                                            : watch_lines(&watch);
    strait_watch_close(&watch);
    return err;
}

const strait_command strait_cmd_watch = {
    .name = "watch",
    .usage = "FOLDER|http://HOST:PORT [flags]",
    .summary = "show a run while it trains",
    .about =
        "Shows curves, stages, links, workers and events of a run of \"strait train\" or \"strait\n"
        "host\", from its folder or from its page, and refreshes every second until the run ends.\n"
        "Keys: q quits, p pauses, left and right choose the curve, up and down its axis, l a log\n"
        "scale. Where the output is not a terminal, it prints a line per second.",
    .flags = flags,
    .run = run_watch,
    .examples = (const strait_example[]){{"strait watch runs/tiny",
                                          "Shows a run full-screen until it ends; q quits."},
                                         {"strait watch http://127.0.0.1:7777",
                                          "Shows the run behind a page."},
                                         {"strait watch runs/tiny --once",
                                          "Prints the current state, for scripts."},
                                         {0}},
};
