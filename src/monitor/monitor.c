#include "monitor/monitor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "monitor/listen.h"
#include "monitor/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

static const double message_s = 1.0;  // at least between two messages
static const double alive_s = 10.0;   // at most between two, so that dead readers are noticed
static const double farewell_s = 1.0; // that readers have for the last one

/* ---- the publisher ---- */

static void wake(const struct strait_monitor *m) {
    const uint64_t one = 1;
    (void)!write(m->wake_fd, &one, sizeof one); // cannot block: the counter is far from full
}

static void tell(struct strait_monitor *m) {
    if (atomic_load(&m->wants_news)) wake(m);
}

static void publish(struct strait_monitor *m) {
    strait_state_copy(&m->slots[m->back], &m->own);
    m->back = atomic_exchange(&m->newest, m->back | STRAIT_MONITOR_FRESH) & ~STRAIT_MONITOR_FRESH;
    tell(m);
}

void strait_monitor_opened(struct strait_monitor *m, const strait_trainer_info *info,
                           int64_t step) {
    strait_state_set_info(&m->own, info, step);
    publish(m);
}

void strait_monitor_stepped(struct strait_monitor *m, const strait_trainer_report *report,
                            double seconds_left) {
    strait_state_put_step(&m->own, report, seconds_left);
    publish(m);
}

void strait_monitor_validated(struct strait_monitor *m, int64_t step, double loss) {
    m->own.has_valid = 1;
    m->own.valid_step = step;
    m->own.valid_loss = loss;
    publish(m);
}

void strait_monitor_noted(struct strait_monitor *m, const char *text) {
    strait_state_put_event(&m->own, text);
    publish(m);
}

/* As text, because the references of a JSON value are not for two threads. */
void strait_monitor_swarm(struct strait_monitor *m, json_t *swarm) {
    char *text = swarm != NULL ? json_dumps(swarm, JSON_COMPACT) : NULL;
    json_decref(swarm);
    if (text == NULL) return;
    free(atomic_exchange(&m->swarm_text, text));
    tell(m);
}

/* ---- the monitor's thread ---- */

void strait_monitor_refresh(struct strait_monitor *m) {
    if ((atomic_load(&m->newest) & STRAIT_MONITOR_FRESH) != 0) {
        m->front = atomic_exchange(&m->newest, m->front) & ~STRAIT_MONITOR_FRESH;
        m->view = &m->slots[m->front];
        m->view_version++;
    }
    char *text = atomic_exchange(&m->swarm_text, NULL);
    if (text == NULL) return;
    json_t *swarm = json_loads(text, 0, NULL);
    if (swarm != NULL) {
        json_decref(m->swarm);
        m->swarm = swarm;
        m->view_version++;
    }
    free(text);
}

/* Messages are for streams alone: without readers nothing is composed and no file is read. */
static void broadcast_if_due(struct strait_monitor *m) {
    const double since = strait_clock_seconds() - m->sent_at;
    if (m->n_streams == 0 || since < message_s) return;
    strait_monitor_refresh(m);
    if (m->view_version != m->sent_version)
        strait_stream_broadcast(m, 0);
    else if (since > alive_s)
        strait_stream_broadcast(m, 1);
}

/* How long to wait. Only a message that is due is worth a wake by the publisher: until then, and
 * without readers, steps pass unnoticed. */
static int choose_wait_ms(struct strait_monitor *m) {
    const double early = message_s - (strait_clock_seconds() - m->sent_at);
    const int wants_news = m->n_streams > 0 && early <= 0.0;
    atomic_store(&m->wants_news, wants_news);
    if (m->n_streams == 0) return 5000;
    if (!wants_news) return 1 + (int)(1000.0 * early);
    /* What was published before the flag was set woke nobody. */
    strait_monitor_refresh(m);
    return m->view_version != m->sent_version ? 0 : 1000;
}

/* Waits for sockets, for the publisher, or until `timeout` has passed. */
static void serve_once(struct strait_monitor *m, int epoll_fd, int timeout) {
    struct pollfd wait[] = {{.fd = epoll_fd, .events = POLLIN},
                            {.fd = m->wake_fd, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG ms = 0;
    uint64_t n = 0;
    if (MHD_get_timeout(m->listener.daemon, &ms) == MHD_YES && ms < (MHD_UNSIGNED_LONG_LONG)timeout)
        timeout = (int)ms;
    (void)poll(wait, 2, m->has_resumed ? 0 : timeout);
    m->has_resumed = 0;
    if ((wait[1].revents & POLLIN) != 0) (void)!read(m->wake_fd, &n, sizeof n);
    strait_connections_expire(&m->listener.connections);
    (void)MHD_run(m->listener.daemon);
}

/* The last message says how the run ended. */
static void say_farewell(struct strait_monitor *m, int epoll_fd) {
    const double until = strait_clock_seconds() + farewell_s;
    strait_monitor_refresh(m);
    if (m->n_streams > 0) strait_stream_broadcast(m, 0);
    while (!strait_stream_is_idle(m) && strait_clock_seconds() < until)
        serve_once(m, epoll_fd, 20);
    m->is_ended = 1;
    strait_stream_resume_all(m);
    (void)MHD_run(m->listener.daemon);
    strait_listener_close(&m->listener);
}

static void *serve(void *user) {
    struct strait_monitor *m = user;
    (void)prctl(PR_SET_NAME, "strait-page"); // as top -H and ps -L show it
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(m->listener.daemon,
                                                           MHD_DAEMON_INFO_EPOLL_FD);
    const int epoll_fd = info->epoll_fd;
    while (!atomic_load(&m->is_stopping)) {
        serve_once(m, epoll_fd, choose_wait_ms(m));
        broadcast_if_due(m);
    }
    say_farewell(m, epoll_fd);
    return NULL;
}

/* Signals are for the thread that trains. */
static strait_err start_thread(struct strait_monitor *m) {
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&m->thread, NULL, serve, m);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    m->has_thread = failed == 0;
    return failed == 0 ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "cannot start the page's thread");
}

/* ---- opening and closing ---- */

static strait_err open_into(struct strait_monitor *m, const strait_monitor_spec *spec) {
    STRAIT_TRY(strait_file_path(m->metrics_path, "%s", spec->metrics_path));
    STRAIT_TRY(strait_follow_open(m->metrics_path, &m->follow));
    strait_state_open(&m->own, &spec->run);
    m->back = 0, m->front = 1;
    atomic_init(&m->newest, 2);
    m->view = &m->slots[m->front];
    strait_state_copy(&m->slots[m->front], &m->own);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0) return STRAIT_FAIL(STRAIT_ENOMEM, "cannot create an eventfd for the page");
    /* The daemon has no thread of its own: ours runs it, so that streams need no lock. */
    STRAIT_TRY(strait_listener_open(&m->listener,
                                    &(strait_listener_spec){.address = spec->address,
                                                            .token = spec->token,
                                                            .page = strait_page_files[0].text,
                                                            .n_connections = STRAIT_MONITOR_READERS,
                                                            .answer = strait_monitor_answer,
                                                            .user = m}));
    return start_thread(m);
}

strait_err strait_monitor_open(const strait_monitor_spec *spec, struct strait_monitor **out) {
    struct strait_monitor *m = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *m, "page", (void **)&m));
    m->wake_fd = -1;
    const strait_err err = open_into(m, spec);
    if (err != STRAIT_OK)
        strait_monitor_close(&m, NULL);
    else
        *out = m;
    return err;
}

void strait_monitor_close(struct strait_monitor **monitor, const char *reason) {
    struct strait_monitor *m = *monitor;
    if (m == NULL) return;
    strait_state_end(&m->own, reason);
    if (m->has_thread) {
        publish(m);
        atomic_store(&m->is_stopping, 1);
        wake(m);
        (void)pthread_join(m->thread, NULL);
    }
    strait_listener_close(&m->listener);
    strait_message_release(&m->latest);
    json_decref(m->sent);
    json_decref(m->swarm);
    free(m->timeline);
    free(atomic_load(&m->swarm_text));
    strait_follow_close(&m->follow);
    if (m->wake_fd >= 0) (void)close(m->wake_fd);
    strait_alloc_free(m);
    *monitor = NULL;
}

const char *strait_monitor_url(const struct strait_monitor *m) {
    return m->listener.url;
}
