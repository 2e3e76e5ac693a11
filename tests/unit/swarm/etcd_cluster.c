#include "etcd_cluster.h"

#include "base/clock.h"
#include "swarm/etcd_http.h"
#include "swarm/etcd_json.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum {
    ARGS_MAX = 24,
    START_S = 60 // a busy machine takes its time
};

int cluster_is_installed(void) {
    return access("/usr/bin/etcd", X_OK) == 0;
}

/* Ports nobody uses, all held until each is known. */
static void choose_ports(int *out, int n) {
    int sockets[2 * CLUSTER_SIZE];
    for (int i = 0; i < n; i++) {
        struct sockaddr_in where = {.sin_family = AF_INET,
                                    .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
        socklen_t size = sizeof where;
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(bind(sockets[i], (struct sockaddr *)&where, sizeof where) == 0);
        CHECK(getsockname(sockets[i], (struct sockaddr *)&where, &size) == 0);
        out[i] = ntohs(where.sin_port);
    }
    for (int i = 0; i < n; i++)
        (void)close(sockets[i]);
}

static void become_member(const struct cluster *c, int i) {
    char name[16], data[512], client[64], peer[64], all[512], log[512];
    (void)snprintf(name, sizeof name, "m%d", i);
    (void)snprintf(data, sizeof data, "%s/m%d", c->folder.path, i);
    (void)snprintf(log, sizeof log, "%s/m%d.log", c->folder.path, i);
    (void)snprintf(client, sizeof client, "http://127.0.0.1:%d", c->client_ports[i]);
    (void)snprintf(peer, sizeof peer, "http://127.0.0.1:%d", c->peer_ports[i]);
    (void)snprintf(all, sizeof all,
                   "m0=http://127.0.0.1:%d,m1=http://127.0.0.1:%d,m2=http://127.0.0.1:%d",
                   c->peer_ports[0], c->peer_ports[1], c->peer_ports[2]);
    const char *args[ARGS_MAX] = {"etcd", "--name",
                                  name,   "--data-dir",
                                  data,   "--listen-client-urls",
                                  client, "--advertise-client-urls",
                                  client, "--listen-peer-urls",
                                  peer,   "--initial-advertise-peer-urls",
                                  peer,   "--initial-cluster",
                                  all,    NULL};
    const int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 1); // NOLINT(concurrency-mt-unsafe): a child
    (void)dup2(out, 1);
    (void)dup2(out, 2);
    (void)execv("/usr/bin/etcd", (char *const *)(uintptr_t)args); // NOLINT
    _exit(127);
}

void cluster_start(struct cluster *c, int member) {
    CHECK(c->members[member] == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) become_member(c, member);
    c->members[member] = child;
}

void cluster_signal(struct cluster *c, int member, int signal) {
    CHECK(kill(c->members[member], signal) == 0);
    if (signal != SIGKILL) return;
    CHECK(waitpid(c->members[member], NULL, 0) == c->members[member]);
    c->members[member] = 0;
}

void cluster_open(struct cluster *c) {
    int ports[2 * CLUSTER_SIZE];
    *c = (struct cluster){.folder = scratch_open()};
    choose_ports(ports, 2 * CLUSTER_SIZE);
    for (int i = 0; i < CLUSTER_SIZE; i++) {
        c->client_ports[i] = ports[i];
        c->peer_ports[i] = ports[CLUSTER_SIZE + i];
    }
    (void)snprintf(c->store, sizeof c->store,
                   "etcd:http://127.0.0.1:%d,http://127.0.0.1:%d,http://127.0.0.1:%d",
                   c->client_ports[0], c->client_ports[1], c->client_ports[2]);
    for (int i = 0; i < CLUSTER_SIZE; i++)
        cluster_start(c, i);
}

void cluster_close(struct cluster *c) {
    for (int i = 0; i < CLUSTER_SIZE; i++)
        if (c->members[i] != 0) cluster_signal(c, i, SIGKILL);
    scratch_close(&c->folder);
}

/* Asks one member; NULL when it has no answer. */
static json_t *ask_member(const struct cluster *c, int member, const char *path,
                          const json_t *request) {
    struct strait_etcd_http http = {.curl = NULL};
    const strait_record_config config = {.timeout_ms = 1000};
    char url[64];
    json_t *answer = NULL;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", c->client_ports[member]);
    CHECK_OK(strait_etcd_http_init(&http, url, &config));
    if (strait_etcd_http_ask(&http, path, request, &answer) != STRAIT_OK) answer = NULL;
    strait_etcd_http_fini(&http);
    return answer;
}

void cluster_await(struct cluster *c) {
    const int64_t until = strait_clock_ns() + (int64_t)START_S * 1000000000;
    json_t *request = json_pack("{s:o}", "key", strait_etcd_text("any"));
    for (int i = 0; i < CLUSTER_SIZE; i++) {
        if (c->members[i] == 0) continue;
        json_t *answer = NULL;
        while ((answer = ask_member(c, i, "/v3/kv/range", request)) == NULL)
            if (strait_clock_ns() > until)
                fail_msg("etcd member %d does not answer; its words are in %s", i, c->folder.path);
        json_decref(answer);
    }
    json_decref(request);
}

int cluster_leader(struct cluster *c) {
    json_t *request = json_object();
    int found = -1;
    for (int i = 0; i < CLUSTER_SIZE && found < 0; i++) {
        json_t *answer = ask_member(c, i, "/v3/maintenance/status", request);
        const char *leader = json_string_value(json_object_get(answer, "leader"));
        const char *member = json_string_value(
            json_object_get(json_object_get(answer, "header"), "member_id"));
        if (leader != NULL && member != NULL && strcmp(leader, member) == 0) found = i;
        json_decref(answer);
    }
    json_decref(request);
    CHECK(found >= 0);
    return found;
}
