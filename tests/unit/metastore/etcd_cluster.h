/* etcd_cluster.h - a real etcd cluster on loopback, whose members a test can kill. */
#pragma once

#include "check.h"
#include "scratch.h"

#include <sys/types.h>

enum {
    CLUSTER_SIZE = 3
};

struct cluster {
    scratch folder;
    int client_ports[CLUSTER_SIZE], peer_ports[CLUSTER_SIZE];
    pid_t members[CLUSTER_SIZE];       // 0: not running
    char store[256];                   // for strait_metastore_config
    int is_tls;                        // clients show a certificate, and members show theirs
    char ca[300], cert[300], key[300]; // files, then
};

int cluster_is_installed(void);

/* Starts all members; cluster_await is still to be called. With `is_tls` the openssl program makes
 * the keys. */
void cluster_open(struct cluster *c, int is_tls);
void cluster_close(struct cluster *c);

void cluster_start(struct cluster *c, int member);
void cluster_signal(struct cluster *c, int member, int signal); // SIGKILL also waits for its end
/* Waits until the cluster answers through every member that runs. */
void cluster_await(struct cluster *c);
/* Returns the member that is the raft leader. */
int cluster_leader(struct cluster *c);
