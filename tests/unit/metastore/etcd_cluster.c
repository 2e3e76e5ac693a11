#include "etcd_cluster.h"

#include "base/clock.h"
#include "metastore/etcd_http.h"
#include "metastore/etcd_json.h"
#include "port.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum {
    ARGS_MAX = 32,
    START_S = 300 // a busy machine takes its time
};

int cluster_is_installed(void) {
    return access("/usr/bin/etcd", X_OK) == 0;
}

static const char *scheme(const struct cluster *c) {
    return c->is_tls ? "https://" : "http://";
}

/* Creates one authority and one certificate for all members, on 127.0.0.1. */
static void make_keys(struct cluster *c) {
    char command[2048];
    const char *at = c->folder.path;
    (void)snprintf(c->ca, sizeof c->ca, "%s/ca.pem", at);
    (void)snprintf(c->cert, sizeof c->cert, "%s/cert.pem", at);
    (void)snprintf(c->key, sizeof c->key, "%s/key.pem", at);
    (void)snprintf(command, sizeof command,
                   "cd %s && exec >keys.log 2>&1 && "
                   "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
                   "-subj /CN=authority -keyout ca.key -out ca.pem && "
                   "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=node "
                   "-keyout key.pem -out node.csr && echo subjectAltName=IP:127.0.0.1 >ext && "
                   "openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
                   "-days 2 -extfile ext -out cert.pem",
                   at);
    CHECK(system(command) == 0); // NOLINT(concurrency-mt-unsafe): one thread
}

static void become_member(const struct cluster *c, int i) {
    char name[16], data[512], client[64], peer[64], all[512], log[512];
    (void)snprintf(name, sizeof name, "m%d", i);
    (void)snprintf(data, sizeof data, "%s/m%d", c->folder.path, i);
    (void)snprintf(log, sizeof log, "%s/m%d.log", c->folder.path, i);
    (void)snprintf(client, sizeof client, "%s127.0.0.1:%d", scheme(c), c->client_ports[i]);
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
    static const char *const tls[] = {"--cert-file", "--key-file", "--trusted-ca-file"};
    const char *const files[] = {c->cert, c->key, c->ca};
    int n_args = 0;
    while (args[n_args] != NULL)
        n_args++;
    for (int k = 0; k < 3 && c->is_tls; k++) {
        args[n_args++] = tls[k];
        args[n_args++] = files[k];
    }
    if (c->is_tls) args[n_args] = "--client-cert-auth";
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

void cluster_open(struct cluster *c, int is_tls) {
    *c = (struct cluster){.folder = scratch_open(), .is_tls = is_tls};
    if (is_tls) make_keys(c);
    for (int i = 0; i < CLUSTER_SIZE; i++) {
        c->client_ports[i] = port_choose();
        c->peer_ports[i] = port_choose();
    }
    const char *p = scheme(c);
    (void)snprintf(c->store, sizeof c->store, "etcd:%s127.0.0.1:%d,%s127.0.0.1:%d,%s127.0.0.1:%d",
                   p, c->client_ports[0], p, c->client_ports[1], p, c->client_ports[2]);
    for (int i = 0; i < CLUSTER_SIZE; i++)
        cluster_start(c, i);
}

void cluster_close(struct cluster *c) {
    for (int i = 0; i < CLUSTER_SIZE; i++)
        if (c->members[i] != 0) cluster_signal(c, i, SIGKILL);
    scratch_close(&c->folder);
}

/* Asks one member; NULL when it does not answer. */
static json_t *ask_member(const struct cluster *c, int member, const char *path,
                          const json_t *request) {
    struct strait_etcd_http http = {.curl = NULL};
    strait_metastore_config config = {.timeout_ms = 5000};
    char url[64];
    json_t *answer = NULL;
    if (c->is_tls) {
        config.ca_file = c->ca;
        config.cert_file = c->cert;
        config.key_file = c->key;
    }
    (void)snprintf(url, sizeof url, "%s127.0.0.1:%d", scheme(c), c->client_ports[member]);
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
                fail_msg("etcd member %d does not answer; see its log in %s", i, c->folder.path);
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
