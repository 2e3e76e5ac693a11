/* Server-sent events, read from a socket: when they come and what they leave out. */
#include "base/clock.h"
#include "check.h"
#include "monitor/fetch.h"
#include "monitor/monitor.h"
#include "scratch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* One reader of /api/v1/stream. */
typedef struct reader {
    int fd;
    char text[1 << 18];
    size_t used;
} reader;

static void open_reader(const struct strait_monitor *m, reader *out) {
    static const char request[] = "GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = strrchr(strait_monitor_url(m), ':') + 1;
    address.sin_port = htons((uint16_t)strtol(port, NULL, 10));
    out->used = 0;
    out->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(out->fd >= 0);
    const int few = 4096; // so that the kernel holds few messages for a reader that does not read
    (void)setsockopt(out->fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    CHECK(connect(out->fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(write(out->fd, request, sizeof request - 1) == (ssize_t)sizeof request - 1);
}

/* Takes the next message that has arrived whole; waits for a millisecond at most. NULL: none. */
static json_t *take_message(reader *r) {
    struct pollfd in = {.fd = r->fd, .events = POLLIN};
    if (poll(&in, 1, 1) > 0) {
        const ssize_t n = read(r->fd, r->text + r->used, sizeof r->text - 1 - r->used);
        CHECK(n > 0);
        r->used += (size_t)n;
    }
    r->text[r->used] = '\0';
    /* A chunk of HTTP may end inside of a message: what remains is dropped with the lengths. */
    char *begin = strstr(r->text, "data: "), *end = begin != NULL ? strstr(begin, "\n\n") : NULL;
    if (end == NULL) return NULL;
    char *out = begin + 6;
    for (const char *in_text = out; in_text < end; in_text++) {
        if (*in_text == '\r') { // \r\nLENGTH\r\n
            in_text = strstr(in_text + 2, "\r\n") + 1;
            continue;
        }
        *out++ = *in_text;
    }
    json_t *message = json_loadb(begin + 6, (size_t)(out - begin) - 6, 0, NULL);
    assert_non_null(message);
    r->used -= (size_t)(end + 2 - r->text);
    memmove(r->text, end + 2, r->used);
    return message;
}

static struct strait_monitor *open_monitor(const char *path) {
    const strait_monitor_spec spec = {
        .address = "127.0.0.1:0", .metrics_path = path, .run = {.name = "run", .steps = 10}};
    struct strait_monitor *m = NULL;
    CHECK_OK(strait_monitor_open(&spec, &m));
    return m;
}

static void publish(struct strait_monitor *m, int64_t step) {
    const strait_trainer_report report = {.step = step, .limit = "compute"};
    strait_monitor_stepped(m, &report, 1.0);
}

/* Publishes steps until a message arrives. */
static json_t *publish_until_message(struct strait_monitor *m, reader *r, int64_t *step) {
    json_t *message = NULL;
    while ((message = take_message(r)) == NULL)
        publish(m, ++*step);
    return message;
}

static int64_t number_of(const json_t *message) {
    return json_integer_value(json_object_get(message, "number"));
}

/* A message leaves when it is due, not with the next one, and a request in the meantime does not
 * put it off. On a busy machine everything may be late: some messages in a row must be in time. */
static void test_sends_every_second_whatever_else_is_asked(void **state) {
    (void)state;
    static reader r;
    scratch dir = scratch_open();
    struct strait_monitor *m = open_monitor(scratch_at(&dir, "metrics.jsonl"));
    int64_t step = 0;
    int n_in_time = 0;
    open_reader(m, &r);
    json_decref(publish_until_message(m, &r, &step));
    for (int i = 0; i < 300 && n_in_time < 3; i++) {
        json_t *message = NULL, *answer = NULL;
        const double began = strait_clock_seconds();
        while ((message = take_message(&r)) == NULL) {
            publish(m, ++step);
            if (answer == NULL && strait_clock_seconds() - began > 0.8)
                CHECK_OK(strait_fetch_json(strait_monitor_url(m), "/api/v1/state", &answer));
        }
        n_in_time = strait_clock_seconds() - began <= 1.4 ? n_in_time + 1 : 0;
        json_decref(message);
        json_decref(answer);
    }
    CHECK(n_in_time == 3);
    (void)close(r.fd);
    strait_monitor_close(&m, NULL);
    scratch_close(&dir);
}

/* The first message of a reader has the whole state, the next only what changed: merged in order
 * they give the state. */
static void test_sends_differences(void **state) {
    (void)state;
    static reader r;
    scratch dir = scratch_open();
    struct strait_monitor *m = open_monitor(scratch_at(&dir, "metrics.jsonl"));
    int64_t step = 0;
    open_reader(m, &r);
    json_t *merged = json_object(), *answer = NULL;
    for (int i = 0; i < 3; i++) {
        json_t *message = publish_until_message(m, &r, &step);
        json_t *changes = json_object_get(message, "state");
        CHECK((json_object_get(changes, "run") != NULL) == (i == 0));
        CHECK((json_object_get(changes, "memory") != NULL) == (i == 0));
        CHECK(json_object_get(changes, "now") != NULL);
        (void)json_object_update(merged, changes);
        json_decref(message);
    }
    CHECK_OK(strait_fetch_json(strait_monitor_url(m), "/api/v1/state", &answer));
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(answer, key, value) {
        if (strcmp(key, "now") != 0 && strcmp(key, "step") != 0)
            CHECK(json_equal(value, json_object_get(merged, key)));
    }
    json_decref(answer);
    json_decref(merged);
    (void)close(r.fd);
    strait_monitor_close(&m, NULL);
    scratch_close(&dir);
}

/* A reader that does not read for some seconds misses messages, and then gets the whole state. */
static void test_sends_everything_after_a_gap(void **state) {
    (void)state;
    static reader slow, quick;
    scratch dir = scratch_open();
    struct strait_monitor *m = open_monitor(scratch_at(&dir, "metrics.jsonl"));
    int64_t step = 0, last = 0;
    char text[200];
    open_reader(m, &slow);
    json_t *message = publish_until_message(m, &slow, &step);
    last = number_of(message);
    json_decref(message);
    /* Every new reader gets a message at once, which all the others get too; 64 long events make it
     * too large for the kernel to hold many. */
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 64; k++)
            strait_monitor_noted(m, text);
        open_reader(m, &quick);
        json_decref(publish_until_message(m, &quick, &step));
        (void)close(quick.fd);
    }
    int n_gaps = 0;
    const double until = strait_clock_seconds() + 600.0;
    while (n_gaps == 0 && strait_clock_seconds() < until) {
        if ((message = take_message(&slow)) == NULL) continue;
        const int is_gap = number_of(message) > last + 1;
        const int is_whole = json_object_get(json_object_get(message, "state"), "run") != NULL;
        CHECK(is_gap == is_whole);
        n_gaps += is_gap;
        last = number_of(message);
        json_decref(message);
    }
    CHECK(n_gaps == 1);
    (void)close(slow.fd);
    strait_monitor_close(&m, NULL);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sends_every_second_whatever_else_is_asked),
        cmocka_unit_test(test_sends_differences),
        cmocka_unit_test(test_sends_everything_after_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
