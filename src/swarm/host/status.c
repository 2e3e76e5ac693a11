/* status.c - collects the status of a swarm and stores it as JSON. Readers accept missing fields,
 * so that `strait watch` of one release can show the run of another. */
#include "swarm/host/status.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text/text.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_MAX = 1 << 20 // bounds what a damaged file can make us parse
};

/* Names are not unique and whole keys are long: eight digits of the key tell workers apart. */
static void collect_worker(const strait_host_status *from, int slot, strait_status_worker *out) {
    const strait_swarm_worker *worker = &from->coordinator->workers[slot];
    const strait_link_stats *link = &from->links[slot];
    char key[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(&worker->key, key);
    const int stage = strait_coordinator_stage_of(from->coordinator, slot);
    *out = (strait_status_worker){
        .stage = stage,
        .replica = worker->replica,
        .n_replicas = stage < 0 ? 0 : strait_coordinator_n_replicas(from->coordinator, stage),
        .is_connected = worker->is_connected,
        .flops = worker->report.flops,
        .memory_bytes = worker->report.memory_bytes,
        .silence_s = (double)(strait_clock_ns() - worker->seen_ns) * 1e-9,
        .rtt_s = link->rtt_s,
        .up_bps = link->delivery_bps,
        .sent_bytes = (double)link->sent_bytes,
        .received_bytes = (double)link->received_bytes,
        .tokens = (double)worker->tokens};
    memcpy(out->name, worker->report.name, sizeof out->name);
    memcpy(out->device, worker->report.device, sizeof out->device);
    (void)snprintf(out->key, sizeof out->key, "%.8s", key);
}

void strait_status_collect(const strait_host_status *from, strait_status *out) {
    const struct strait_coordinator *c = from->coordinator;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->phase, sizeof out->phase, "%s",
                   from->is_paused ? "paused" : strait_coordinator_phase_name(c->phase));
    out->generation = c->generation;
    out->step = c->step;
    out->committed = c->committed;
    out->n_stages = c->config.n_stages;
    out->refused = from->n_refused;
    out->has_audits = from->has_audits;
    out->approved = from->n_approved;
    out->convicted = from->n_convicted;
    out->unsettled = from->n_dropped;
    out->ids_bytes = (double)from->ids_bytes;
    out->more_stage = from->more.stage;
    out->more_gain = from->more.gain;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        /* A disconnected owner is listed too: the run is waiting for it. */
        if (c->workers[i].is_known && (c->workers[i].is_connected || c->workers[i].stage >= 0))
            collect_worker(from, i, &out->workers[out->n_workers++]);
}

/* Returns NULL when memory is short; the file then lacks this worker until the next second. */
static json_t *pack_worker(const strait_status_worker *m) {
    return json_pack("{ss ss ss si si si sb sf sf sf sf sf sf sf sI}", "name", m->name, "key",
                     m->key, "device", m->device, "stage", m->stage, "replica", m->replica,
                     "replicas", m->n_replicas, "connected", m->is_connected, "flops", m->flops,
                     "memory", m->memory_bytes, "silence", m->silence_s, "rtt", m->rtt_s, "rate",
                     m->up_bps, "sent", m->sent_bytes, "received", m->received_bytes, "tokens",
                     (json_int_t)m->tokens);
}

json_t *strait_status_pack(const strait_status *status) {
    json_t *workers = json_array();
    for (int i = 0; i < status->n_workers; i++)
        (void)json_array_append_new(workers, pack_worker(&status->workers[i]));
    json_t *audits = status->has_audits
                         ? json_pack("{sI sI sI}", "approved", (json_int_t)status->approved,
                                     "convicted", (json_int_t)status->convicted, "unsettled",
                                     (json_int_t)status->unsettled)
                         : json_null();
    json_t *more = status->more_gain > 0.0 ? json_pack("{si sf}", "stage", status->more_stage,
                                                       "gain", status->more_gain)
                                           : json_null();
    return json_pack("{ss sI sI sI si sI sf so so so}", "phase", status->phase, "generation",
                     (json_int_t)status->generation, "step", (json_int_t)status->step, "committed",
                     (json_int_t)status->committed, "stages", status->n_stages, "refused",
                     (json_int_t)status->refused, "ids_bytes", status->ids_bytes, "audits", audits,
                     "more", more, "workers", workers);
}

/* Replaced as a whole, so that a reader never sees half a file. */
strait_err strait_status_save(const strait_status *status, const char *folder) {
    char path[STRAIT_PATH_MAX];
    json_t *document = strait_status_pack(status);
    if (document == NULL)
        return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for the status of the swarm");
    strait_err err = strait_file_path(path, "%s/swarm.json", folder);
    /* Not synced: the thread that serves the links writes it, and must not wait for the disk. */
    if (err == STRAIT_OK) err = strait_json_publish(path, document);
    json_decref(document); // and with it `workers`, which it owns
    return err;
}

/* A missing field reads as empty, or as 0 below. */
static void read_text(const json_t *object, const char *key, char *out, size_t capacity) {
    const char *text = json_string_value(json_object_get(object, key));
    strait_text_copy(out, capacity, text != NULL ? text : "");
    strait_text_tame(out);
}

static double read_real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* As written by pack_worker. */
static void read_worker(const json_t *object, strait_status_worker *out) {
    *out = (strait_status_worker){
        .stage = (int)json_integer_value(json_object_get(object, "stage")),
        .replica = (int)json_integer_value(json_object_get(object, "replica")),
        .n_replicas = (int)json_integer_value(json_object_get(object, "replicas")),
        .is_connected = json_is_true(json_object_get(object, "connected")),
        .flops = read_real(object, "flops"),
        .memory_bytes = read_real(object, "memory"),
        .silence_s = read_real(object, "silence"),
        .rtt_s = read_real(object, "rtt"),
        .up_bps = read_real(object, "rate"),
        .sent_bytes = read_real(object, "sent"),
        .received_bytes = read_real(object, "received"),
        .tokens = read_real(object, "tokens"),
    };
    read_text(object, "name", out->name, sizeof out->name);
    read_text(object, "device", out->device, sizeof out->device);
    read_text(object, "key", out->key, sizeof out->key);
}

void strait_status_unpack(const json_t *document, strait_status *out) {
    const json_t *workers = json_object_get(document, "workers");
    memset(out, 0, sizeof *out); // what the document lacks stays zero
    read_text(document, "phase", out->phase, sizeof out->phase);
    out->generation = (int64_t)read_real(document, "generation");
    out->step = (int64_t)read_real(document, "step");
    out->committed = (int64_t)read_real(document, "committed");
    out->n_stages = (int)read_real(document, "stages");
    out->refused = (int64_t)read_real(document, "refused");
    out->ids_bytes = read_real(document, "ids_bytes");
    const json_t *audits = json_object_get(document, "audits");
    out->has_audits = json_is_object(audits);
    out->approved = (int64_t)read_real(audits, "approved");
    out->convicted = (int64_t)read_real(audits, "convicted");
    out->unsettled = (int64_t)read_real(audits, "unsettled");
    const json_t *more = json_object_get(document, "more");
    out->more_stage = json_is_object(more) ? (int)read_real(more, "stage") : -1;
    out->more_gain = read_real(more, "gain");
    for (size_t i = 0; i < json_array_size(workers) && i < STRAIT_SWARM_WORKERS; i++)
        read_worker(json_array_get(workers, i), &out->workers[out->n_workers++]);
}

strait_err strait_status_load(const char *folder, strait_status *out) {
    char path[STRAIT_PATH_MAX];
    json_t *document = NULL;
    STRAIT_TRY(strait_file_path(path, "%s/swarm.json", folder));
    STRAIT_TRY(strait_json_load(path, FILE_MAX, &document));
    strait_status_unpack(document, out);
    json_decref(document);
    return STRAIT_OK;
}
