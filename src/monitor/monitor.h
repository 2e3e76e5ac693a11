/* monitor.h - shows a running run over HTTP: a page, JSON, server-sent events and Prometheus text.
 *
 * The thread that trains publishes what it knows; it copies a few kilobytes per step and never
 * waits for a reader, the network or a lock. A thread of the monitor serves the readers: at most
 * STRAIT_MONITOR_READERS of them, each with bounded memory; one that reads too slowly skips
 * messages, and one that stops reading is disconnected. Everything is read-only. docs/page.md
 * describes the addresses. */
#pragma once

#include <strait/trainer.h>

#include "base/json.h"

enum {
    STRAIT_MONITOR_READERS = 256, // connections at a time
    STRAIT_MONITOR_TEXT = 128     // bytes of a fact, with the final zero
};

/* What does not change during a run. Texts are copied. */
typedef struct strait_monitor_run {
    char name[STRAIT_MONITOR_TEXT], folder[STRAIT_MONITOR_TEXT], model[STRAIT_MONITOR_TEXT],
        codec[STRAIT_MONITOR_TEXT];
    int64_t steps, batch_tokens;
    double link_bps, link_delay_s; // of the emulated links; 0: not emulated
} strait_monitor_run;

typedef struct strait_monitor_spec {
    const char *address; // numeric HOST:PORT, or localhost:PORT; port 0: any free one
    const char *token;   // that readers must show; NULL: needed only off loopback, and drawn then
    const char *metrics_path; // metrics.jsonl, which may appear later
    strait_monitor_run run;
} strait_monitor_spec;

struct strait_monitor;

/* Listens and starts the thread. STRAIT_ECONFIG: the address is malformed, in use or not of this
 * machine. */
strait_err strait_monitor_open(const strait_monitor_spec *spec, struct strait_monitor **out);

/* Tells readers that the run has ended, gives them up to a second to read it, and ends the thread.
 * `reason` is NULL after success. Accepts NULL. */
void strait_monitor_close(struct strait_monitor **monitor, const char *reason);

/* The address to open, with the token if one is needed. Borrowed. */
const char *strait_monitor_url(const struct strait_monitor *monitor);

/* One thread calls these. None waits, and none fails: what cannot be published is left out. */
void strait_monitor_opened(struct strait_monitor *monitor, const strait_trainer_info *info,
                           int64_t step);
void strait_monitor_stepped(struct strait_monitor *monitor, const strait_trainer_report *report,
                            double seconds_left);
void strait_monitor_validated(struct strait_monitor *monitor, int64_t step, double loss);
void strait_monitor_noted(struct strait_monitor *monitor, const char *text);
/* The state of a swarm, as in swarm.json; takes the reference. */
void strait_monitor_swarm(struct strait_monitor *monitor, json_t *swarm);
