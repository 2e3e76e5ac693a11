#include "page.h"

#include "base/alloc.h"
#include "base/file.h"
#include "monitor/monitor.h"

#include <stdio.h>
#include <string.h>

strait_page_choice strait_page_chosen;

enum {
    TOKEN_FILE_MAX = 4096
};

struct strait_page {
    struct strait_monitor *monitor;
    strait_progress_log *log;
    strait_session_events inner; // of the log
};

/* ---- events of a session: first the log's, then the page's ---- */

static void on_opened(void *user, const strait_trainer_info *info, int64_t step) {
    struct strait_page *page = user;
    page->inner.opened(page->inner.user, info, step);
    strait_monitor_opened(page->monitor, info, step);
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    struct strait_page *page = user;
    page->inner.stepped(page->inner.user, report);
    strait_monitor_stepped(page->monitor, report,
                           strait_progress_log_left(page->log, report->step));
}

static void on_validated(void *user, int64_t step, double loss) {
    struct strait_page *page = user;
    page->inner.validated(page->inner.user, step, loss);
    strait_monitor_validated(page->monitor, step, loss);
}

static void on_saved(void *user, int64_t step) {
    struct strait_page *page = user;
    char text[64];
    page->inner.saved(page->inner.user, step);
    (void)snprintf(text, sizeof text, "checkpoint of step %lld saved", (long long)step);
    strait_monitor_noted(page->monitor, text);
}

static void on_noted(void *user, const char *text) {
    struct strait_page *page = user;
    page->inner.noted(page->inner.user, text);
    strait_monitor_noted(page->monitor, text);
}

static int must_stop(void *user) {
    struct strait_page *page = user;
    return page->inner.must_stop(page->inner.user);
}

static void on_ended(void *user, const strait_trainer_info *info) {
    struct strait_page *page = user;
    page->inner.ended(page->inner.user, info);
}

strait_session_events strait_page_events(struct strait_page *page, strait_progress_log *log) {
    const strait_session_events inner = strait_progress_log_events(log);
    if (page == NULL) return inner;
    page->inner = inner;
    return (strait_session_events){.user = page,
                                   .opened = on_opened,
                                   .stepped = on_stepped,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .noted = on_noted,
                                   .must_stop = must_stop,
                                   .ended = on_ended};
}

void strait_page_noted(struct strait_page *page, const char *text) {
    if (page != NULL) strait_monitor_noted(page->monitor, text);
}

void strait_page_swarm(struct strait_page *page, json_t *swarm) {
    if (page != NULL)
        strait_monitor_swarm(page->monitor, swarm);
    else
        json_decref(swarm);
}

/* ---- opening ---- */

static void get_text(const struct strait_run *run, const char *key, char *out, size_t capacity) {
    char value[STRAIT_RUN_VALUE_BYTES] = "";
    (void)strait_run_get_text(run, key, value, sizeof value);
    (void)snprintf(out, capacity, "%s", value);
}

/* The facts that a page shows and the trainer's description does not have. */
static void read_facts(const struct strait_run *run, const strait_progress_log *log,
                       strait_monitor_run *out) {
    char family[STRAIT_MONITOR_TEXT];
    int64_t layers = 0, width = 0, stages = 1;
    get_text(run, "name", out->name, sizeof out->name);
    get_text(run, "model.family", family, sizeof family);
    (void)strait_run_get_int(run, "model.layers", &layers);
    (void)strait_run_get_int(run, "model.width", &width);
    (void)strait_run_get_int(run, "stages.count", &stages);
    if (stages > 1) get_text(run, "link.codec.name", out->codec, sizeof out->codec);
    (void)snprintf(out->model, sizeof out->model, "%.40s, %lld layers, width %lld", family,
                   (long long)layers, (long long)width);
    (void)snprintf(out->folder, sizeof out->folder, "%s", log->folder);
    (void)strait_run_get_real(run, "link.emulate.rate", &out->link_bps);
    (void)strait_run_get_real(run, "link.emulate.delay", &out->link_delay_s);
    out->steps = log->n_steps;
    out->batch_tokens = log->batch_tokens;
}

strait_err strait_page_read_token(const char *flag, const char *path, char **out) {
    size_t bytes = 0;
    strait_err err = strait_file_read(path, TOKEN_FILE_MAX, out, &bytes);
    if (err != STRAIT_OK) {
        strait_err_prefix("--%s", flag);
        return err;
    }
    (*out)[strcspn(*out, "\r\n")] = '\0';
    return STRAIT_OK;
}

static strait_err open_monitor(const struct strait_run *run, const char *address,
                               struct strait_page *page) {
    char path[STRAIT_PATH_MAX];
    char *token = NULL;
    strait_monitor_spec spec = {.address = address, .metrics_path = path};
    STRAIT_TRY(strait_file_path(path, "%s/metrics.jsonl", page->log->folder));
    if (strait_page_chosen.token_file != NULL)
        STRAIT_TRY(strait_page_read_token("page-token", strait_page_chosen.token_file, &token));
    read_facts(run, page->log, &spec.run);
    spec.token = token;
    const strait_err err = strait_monitor_open(&spec, &page->monitor);
    if (err == STRAIT_ECONFIG)
        strait_err_prefix(strait_page_chosen.address != NULL ? "--page" : "metrics.page");
    strait_alloc_free(token);
    return err;
}

strait_err strait_page_open(const struct strait_run *run, strait_progress_log *log,
                            struct strait_page **out) {
    char address[STRAIT_RUN_VALUE_BYTES] = "";
    struct strait_page *page = NULL;
    *out = NULL;
    if (strait_page_chosen.address != NULL)
        (void)snprintf(address, sizeof address, "%s", strait_page_chosen.address);
    else
        STRAIT_TRY(strait_run_get_text(run, "metrics.page", address, sizeof address));
    if (address[0] == '\0' && strait_page_chosen.token_file != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "--page-token is for a page: --page HOST:PORT, or metrics.page");
    if (address[0] == '\0') return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *page, "page", (void **)&page));
    page->log = log;
    const strait_err err = open_monitor(run, address, page);
    if (err != STRAIT_OK) {
        strait_alloc_free(page);
        return err;
    }
    strait_progress_say(&log->progress, "page: %s", strait_monitor_url(page->monitor));
    strait_progress_log_text(log, "page", "url", strait_monitor_url(page->monitor));
    *out = page;
    return STRAIT_OK;
}

void strait_page_close(struct strait_page **page, strait_err err) {
    if (*page == NULL) return;
    strait_monitor_close(&(*page)->monitor, err == STRAIT_OK ? NULL : strait_err_detail());
    strait_alloc_free(*page);
    *page = NULL;
}
