/* watch.h - what `strait watch` shows, from wherever it comes: a run's folder or its page. */
#pragma once

#include "monitor/follow.h"
#include "swarm/host/status.h"

enum {
    WATCH_TEXT = 128,
    WATCH_EVENTS = 16,
    WATCH_EVENT_BYTES = 200
};

/* One stage in the last step; seconds, and the bytes that crossed the boundary behind it. */
typedef struct strait_watch_stage {
    double busy_s, wait_s, forward_bytes, backward_bytes, residual_forward, residual_backward;
} strait_watch_stage;

typedef struct strait_watch {
    const char *folder, *url; // one of them; borrowed
    char path[STRAIT_PATH_MAX];
    strait_follow follow; // its series is filled in both cases
    /* As of the last refresh: */
    char name[WATCH_TEXT], phase[WATCH_TEXT], limit[32], advice[512];
    int64_t steps;       // of the whole run; 0: unknown
    double seconds_left; // NaN: unknown
    double silence_s;    // since the last step
    int n_stages;
    int replicas[STRAIT_RUN_STAGES]; // processes that hold each stage, of "strait train"
    strait_watch_stage stages[STRAIT_RUN_STAGES];
    int has_swarm;
    strait_status swarm;
    char events[WATCH_EVENTS][WATCH_EVENT_BYTES]; // newest last
    int n_events;
    int is_over; // nothing will change any more
} strait_watch;

/* `what` is a folder or http://HOST:PORT. STRAIT_EIO: no such folder, or it holds no run. Errors of
 * a page are those of strait_fetch_json. */
strait_err strait_watch_open(const char *what, strait_watch *out);
void strait_watch_close(strait_watch *watch);

/* Reads what is new. A page that no longer answers ends the watch: is_over. */
strait_err strait_watch_refresh(strait_watch *watch);

/* How a screen is drawn. */
typedef struct strait_watch_look {
    int columns, rows;
    int curve; // which figure: 0 to STRAIT_WATCH_CURVES - 1
    int axis;  // 0 steps, 1 tokens, 2 time
    int is_log, is_paused, has_color, is_utf8;
} strait_watch_look;

enum {
    STRAIT_WATCH_CURVES = 6
};

/* Prints one screen, at most `rows` lines of at most `columns` characters, each cleared to its end.
 */
void strait_watch_draw(const strait_watch *watch, const strait_watch_look *look);
/* One line with step, loss and time left, without a newline. */
void strait_watch_line(const strait_watch *watch, char *out, size_t capacity);
