/* watch_source.c - reads a run from its folder or from its page. */
#include <strait/run.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text/text.h"
#include "monitor/fetch.h"
#include "watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PACE_POINTS = 32, // of the history, from which the time left is estimated
    TAIL_BYTES = 8192
};

/* The page may be anybody's: what it says must not control the terminal. */
static void copy_text(char *out, size_t capacity, const char *text) {
    strait_text_copy(out, capacity, text != NULL ? text : "");
    strait_text_tame(out);
}

static double real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- a folder ---- */

/* One number for all stages, or a list such as [1, 2, 1, 3]. */
static void read_replicas(strait_watch *w, const struct strait_run *run) {
    char text[STRAIT_RUN_VALUE_BYTES] = "";
    int n = 1;
    (void)strait_run_get_text(run, "stages.replicas", text, sizeof text);
    char *at = text;
    for (int i = 0; i < STRAIT_RUN_STAGES; i++) {
        at += strcspn(at, "0123456789");
        if (*at != '\0') n = (int)strtol(at, &at, 10);
        w->replicas[i] = n;
    }
}

/* The number of steps and the name are in run.yaml; a run being created may have none yet. */
static void read_run(strait_watch *w) {
    char path[STRAIT_PATH_MAX], name[STRAIT_RUN_VALUE_BYTES] = "";
    struct strait_run *run = NULL;
    if (strait_file_path(path, "%s/run.yaml", w->folder) != STRAIT_OK ||
        strait_run_load(path, NULL, 0, &run) != STRAIT_OK)
        return;
    (void)strait_run_get_int(run, "train.steps", &w->steps);
    (void)strait_run_get_text(run, "name", name, sizeof name);
    copy_text(w->name, sizeof w->name, name);
    read_replicas(w, run);
    strait_run_close(&run);
}

/* Keeps the last lines of events.log, without reading all of a file that grows with the run. */
static void read_events(strait_watch *w) {
    char path[STRAIT_PATH_MAX], tail[TAIL_BYTES];
    w->n_events = 0;
    if (strait_file_path(path, "%s/events.log", w->folder) != STRAIT_OK) return;
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    if (fseek(file, -(long)sizeof tail + 1, SEEK_END) != 0) rewind(file);
    tail[fread(tail, 1, sizeof tail - 1, file)] = '\0';
    (void)fclose(file);
    for (char *rest = tail, *line = NULL; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        if (w->n_events == WATCH_EVENTS) {
            memmove(w->events, w->events + 1, sizeof *w->events * (WATCH_EVENTS - 1));
            w->n_events--;
        }
        copy_text(w->events[w->n_events++], WATCH_EVENT_BYTES, line);
    }
}

/* One number per stage or boundary of the last line. */
static double element(const json_t *line, const char *key, int i) {
    return json_number_value(json_array_get(json_object_get(line, key), (size_t)i));
}

static void read_stages(strait_watch *w) {
    const json_t *line = w->follow.line;
    const size_t n = json_array_size(json_object_get(line, "stage_busy_seconds"));
    w->n_stages = n < STRAIT_RUN_STAGES ? (int)n : STRAIT_RUN_STAGES;
    for (int i = 0; i < w->n_stages; i++)
        w->stages[i] = (strait_watch_stage){
            .busy_s = element(line, "stage_busy_seconds", i),
            .wait_s = element(line, "stage_wait_seconds", i),
            .forward_bytes = element(line, "boundary_forward_bytes", i),
            .backward_bytes = element(line, "boundary_backward_bytes", i),
            .residual_forward = element(line, "residual_forward", i),
            .residual_backward = element(line, "residual_backward", i)};
    copy_text(w->limit, sizeof w->limit, json_string_value(json_object_get(line, "limit")));
}

/* From the time that the last points took, which includes validations and checkpoints. */
static double estimate_left(const strait_watch *w) {
    const strait_series *s = &w->follow.series;
    if (s->n_points < 2 || w->steps == 0) return (double)NAN;
    const int first = s->n_points > PACE_POINTS ? s->n_points - PACE_POINTS : 0;
    const strait_series_point *a = &s->points[first], *b = &s->points[s->n_points - 1];
    return (b->time - a->time) / (b->step - a->step) * ((double)w->steps - s->last.step);
}

static void refresh_folder(strait_watch *w) {
    char path[STRAIT_PATH_MAX];
    const strait_series *s = &w->follow.series;
    strait_follow_read(&w->follow);
    strait_follow_take(&w->follow);
    if (w->steps == 0) read_run(w);
    read_stages(w);
    read_events(w);
    if (strait_file_path(path, "%s/swarm.json", w->folder) == STRAIT_OK && strait_file_exists(path))
        w->has_swarm = strait_status_load(w->folder, &w->swarm) == STRAIT_OK;
    w->seconds_left = estimate_left(w);
    w->silence_s = s->has_last ? strait_clock_date() - s->last.time : 0.0;
    w->is_over = s->has_last && w->steps > 0 && s->last.step >= (double)w->steps;
    copy_text(w->phase, sizeof w->phase,
              w->is_over     ? "done"
              : w->has_swarm ? w->swarm.phase
              : s->has_last  ? "training"
                             : "starting");
}

/* ---- a page ---- */

static void take_swarm(strait_watch *w, const json_t *swarm) {
    w->has_swarm = json_is_object(swarm);
    if (w->has_swarm) strait_status_unpack(swarm, &w->swarm);
}

static void take_stages(strait_watch *w, const json_t *state) {
    const json_t *stages = json_object_get(state, "stages");
    const json_t *boundaries = json_object_get(state, "boundaries");
    const size_t n = json_array_size(stages);
    w->n_stages = n > STRAIT_RUN_STAGES ? STRAIT_RUN_STAGES : (int)n;
    for (int i = 0; i < w->n_stages; i++) {
        const json_t *s = json_array_get(stages, (size_t)i);
        w->replicas[i] = (int)json_integer_value(json_object_get(s, "replicas"));
        const json_t *b = json_array_get(boundaries, (size_t)i);
        w->stages[i] = (strait_watch_stage){.busy_s = real(s, "forward_s") + real(s, "backward_s") +
                                                      real(s, "codec_s"),
                                            .wait_s = real(s, "wait_s"),
                                            .forward_bytes = real(b, "forward_bytes"),
                                            .backward_bytes = real(b, "backward_bytes"),
                                            .residual_forward = real(b, "residual_forward"),
                                            .residual_backward = real(b, "residual_backward")};
    }
    if (w->n_stages == 1) w->n_stages = 0; // as in a folder: one stage has no times of its own
}

static void take_events(strait_watch *w, const json_t *events) {
    const size_t n = json_array_size(events);
    w->n_events = n > WATCH_EVENTS ? WATCH_EVENTS : (int)n;
    for (int i = 0; i < w->n_events; i++) // newest first there, newest last here
        copy_text(w->events[w->n_events - 1 - i], WATCH_EVENT_BYTES,
                  json_string_value(json_object_get(json_array_get(events, (size_t)i), "text")));
}

static void take_state(strait_watch *w, const json_t *state) {
    const json_t *run = json_object_get(state, "run"), *step = json_object_get(state, "step");
    copy_text(w->name, sizeof w->name, json_string_value(json_object_get(run, "name")));
    copy_text(w->phase, sizeof w->phase, json_string_value(json_object_get(state, "phase")));
    copy_text(w->advice, sizeof w->advice, json_string_value(json_object_get(state, "advice")));
    copy_text(w->limit, sizeof w->limit, json_string_value(json_object_get(step, "limit")));
    w->steps = json_integer_value(json_object_get(run, "steps"));
    w->seconds_left = real(state, "seconds_left");
    w->silence_s = json_is_object(step) ? real(state, "now") - real(step, "time") : 0.0;
    w->is_over = strcmp(w->phase, "done") == 0 || strcmp(w->phase, "failed") == 0;
    take_stages(w, state);
    take_events(w, json_object_get(state, "events"));
    take_swarm(w, json_object_get(state, "swarm"));
}

static strait_err refresh_page(strait_watch *w) {
    json_t *state = NULL, *history = NULL;
    strait_err err = strait_fetch_json(w->url, "/api/v1/state", &state);
    if (err == STRAIT_OK) err = strait_fetch_json(w->url, "/api/v1/history", &history);
    if (err == STRAIT_OK) {
        take_state(w, state);
        strait_series_load(&w->follow.series, history);
    }
    json_decref(state);
    json_decref(history);
    /* A page ends with its run: one that answered before is over, not wrong. */
    if (err == STRAIT_ECLOSED && w->phase[0] != '\0') {
        copy_text(w->phase, sizeof w->phase, "ended");
        w->is_over = 1;
        return STRAIT_OK;
    }
    return err;
}

/* ---- both ---- */

static strait_err check_folder(const char *folder) {
    char path[STRAIT_PATH_MAX];
    static const char *const files[] = {"metrics.jsonl", "swarm.json"};
    if (!strait_file_exists(folder)) return STRAIT_FAIL(STRAIT_EIO, "%s: no such folder", folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        STRAIT_TRY(strait_file_path(path, "%s/%s", folder, files[i]));
        if (strait_file_exists(path)) return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_EIO, "%s: no run has written here (no metrics.jsonl)", folder);
}

strait_err strait_watch_open(const char *what, strait_watch *out) {
    memset(out, 0, sizeof *out);
    if (strncmp(what, "http://", 7) == 0)
        out->url = what;
    else
        out->folder = what;
    if (out->folder != NULL) STRAIT_TRY(check_folder(what));
    STRAIT_TRY(strait_file_path(out->path, "%s/metrics.jsonl", what));
    STRAIT_TRY(strait_follow_open(out->path, &out->follow));
    return strait_watch_refresh(out);
}

void strait_watch_close(strait_watch *w) {
    strait_follow_close(&w->follow);
}

strait_err strait_watch_refresh(strait_watch *w) {
    if (w->url != NULL) return refresh_page(w);
    refresh_folder(w);
    return STRAIT_OK;
}
