/* chain.h - three stages in threads of this process, connected by an in-process network, that are
 * sent commands as a coordinator does: one to each, one reply from each. Every generation has links
 * of its own. */
#pragma once

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "net/inproc/endpoint.h"
#include "stage/runner_state.h"
#include "stage/service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    CHAIN_STAGES = 3
};

struct chain_stage {
    struct chain *chain;
    int stage;
    struct strait_service *service;
    strait_stage_command command;
    strait_stage_reply reply;
    strait_err err;
    char detail[256];
    int fails_after; // backward passes after which the stage fails; -1: never
    int n_backward;
};

struct chain {
    struct strait_inproc_network *hub;
    struct strait_identity *identities[CHAIN_STAGES];
    struct strait_mesh *meshes[CHAIN_STAGES];
    struct chain_stage stages[CHAIN_STAGES];
    atomic_int is_stopping; // a stage has failed: the others give up, as a coordinator tells them
    int generation;
};

static inline strait_err chain_on_message(void *user, struct strait_msg **msg) {
    (void)user;
    (void)msg;
    return STRAIT_OK;
}

static inline strait_err chain_on_poll(void *user) {
    struct chain_stage *s = user;
    const strait_schedule_action_kind last = strait_service_runner(s->service)->last_action;
    if (last == STRAIT_ACTION_BACKWARD || last == STRAIT_ACTION_INPUT) s->n_backward++;
    if (s->fails_after >= 0 && s->n_backward > s->fails_after)
        atomic_store(&s->chain->is_stopping, 1);
    return atomic_load(&s->chain->is_stopping) ? STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped")
                                               : STRAIT_OK;
}

/* New links, as in a new generation: nothing of the last one arrives any more. */
static inline void chain_connect(struct chain *c) {
    int peers[CHAIN_STAGES][2];
    char addresses[CHAIN_STAGES][STRAIT_ADDRESS_MAX];
    c->generation++;
    for (int i = 0; i < CHAIN_STAGES; i++) {
        strait_mesh_config config = {.scheme = "inproc",
                                     .transport = {.network = c->hub,
                                                   .identity = c->identities[i],
                                                   .run = {(unsigned char)c->generation}}};
        char address[32];
        strait_service_set_links(c->stages[i].service, NULL, -1, -1);
        strait_mesh_close(&c->meshes[i]);
        (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", i);
        CHECK_OK(strait_mesh_open(&config, &c->meshes[i]));
        (void)snprintf(address, sizeof address, "stage-%d-%d", c->generation, i);
        CHECK_OK(strait_mesh_listen(c->meshes[i], address, addresses[i]));
        peers[i][0] = peers[i][1] = -1;
    }
    for (int i = CHAIN_STAGES - 2; i >= 0; i--) {
        const strait_mesh_peer prev = {.name = "previous",
                                       .key = *strait_identity_fingerprint(c->identities[i])};
        const strait_mesh_peer next = {.name = "next",
                                       .key = *strait_identity_fingerprint(c->identities[i + 1]),
                                       .address = addresses[i + 1]};
        CHECK_OK(strait_mesh_add(c->meshes[i + 1], &prev, &peers[i + 1][0]));
        CHECK_OK(strait_mesh_add(c->meshes[i], &next, &peers[i][1]));
    }
    for (int i = 0; i < CHAIN_STAGES; i++) {
        for (int k = 0; k < 2; k++)
            if (peers[i][k] >= 0) CHECK_OK(strait_mesh_wait_up(c->meshes[i], peers[i][k], 10000));
        strait_service_set_links(c->stages[i].service, c->meshes[i], peers[i][0], peers[i][1]);
        CHECK_OK(strait_service_greet(c->stages[i].service));
    }
}

static inline void *chain_execute(void *arg) {
    struct chain_stage *s = arg;
    s->err = strait_service_execute(s->service, &s->command, &s->reply);
    (void)snprintf(s->detail, sizeof s->detail, "%s", strait_err_detail());
    return NULL;
}

/* Sends the commands that were set; kind 0: none. */
static inline void chain_run(struct chain *c) {
    pthread_t threads[CHAIN_STAGES];
    atomic_store(&c->is_stopping, 0);
    for (int i = 0; i < CHAIN_STAGES; i++)
        if (c->stages[i].command.kind != 0)
            assert_int_equal(pthread_create(&threads[i], NULL, chain_execute, &c->stages[i]), 0);
    for (int i = 0; i < CHAIN_STAGES; i++)
        if (c->stages[i].command.kind != 0) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static inline void chain_run_ok(struct chain *c) {
    chain_run(c);
    for (int i = 0; i < CHAIN_STAGES; i++)
        if (c->stages[i].command.kind != 0 && c->stages[i].err != STRAIT_OK)
            fail_msg("stage %d: %s", i, c->stages[i].detail);
}

static inline void chain_command_all(struct chain *c, const strait_stage_command *command) {
    for (int i = 0; i < CHAIN_STAGES; i++)
        c->stages[i].command = *command;
    chain_run_ok(c);
}

static inline void chain_open(struct chain *c, const strait_run *run) {
    *c = (struct chain){0};
    CHECK_OK(strait_inproc_network_open(&c->hub));
    for (int i = 0; i < CHAIN_STAGES; i++) {
        struct strait_loader *loader = NULL;
        struct chain_stage *s = &c->stages[i];
        s->chain = c;
        s->stage = i;
        s->fails_after = -1;
        CHECK_OK(strait_identity_generate(&c->identities[i]));
        CHECK_OK(strait_loader_open(run, &loader));
        const strait_service_spec spec = {
            .run = run,
            .stage = i,
            .keeps_crossings = 1,
            .hooks = {.user = s, .on_message = chain_on_message, .on_poll = chain_on_poll}};
        CHECK_OK(strait_service_open(&spec, &loader, &s->service));
    }
    chain_connect(c);
    chain_command_all(c, &(strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .open = {2, 0}});
}

static inline void chain_close(struct chain *c) {
    for (int i = 0; i < CHAIN_STAGES; i++) {
        strait_service_close(&c->stages[i].service);
        strait_mesh_close(&c->meshes[i]);
        strait_identity_close(&c->identities[i]);
    }
    strait_inproc_network_close(&c->hub);
}

static inline struct strait_runner *chain_runner(struct chain *c, int stage) {
    return strait_service_runner(c->stages[stage].service);
}

/* ---- the state of a stage as bytes ---- */

struct chain_state {
    unsigned char *data;
    size_t bytes, at;
};

static inline strait_err chain_size_one(void *user, struct strait_stream *stream, const char *name,
                                        strait_tensor tensor, int is_state) {
    (void)stream, (void)name, (void)is_state;
    ((struct chain_state *)user)->bytes += strait_tensor_bytes(tensor);
    return STRAIT_OK;
}

static inline strait_err chain_save_one(void *user, struct strait_stream *stream, const char *name,
                                        strait_tensor tensor, int is_state) {
    struct chain_state *s = user;
    (void)stream, (void)name, (void)is_state;
    memcpy(s->data + s->at, tensor.data, strait_tensor_bytes(tensor));
    s->at += strait_tensor_bytes(tensor);
    return STRAIT_OK;
}

static inline strait_err chain_load_one(void *user, struct strait_stream *stream, const char *name,
                                        strait_tensor tensor, int is_state) {
    struct chain_state *s = user;
    (void)stream, (void)name, (void)is_state;
    memcpy(tensor.data, s->data + s->at, strait_tensor_bytes(tensor));
    s->at += strait_tensor_bytes(tensor);
    return STRAIT_OK;
}

static inline struct chain_state chain_save(struct strait_runner *runner) {
    struct chain_state s = {0};
    CHECK_OK(strait_runner_state_each(runner, chain_size_one, &s));
    CHECK_OK(strait_alloc(s.bytes, 1, "state", (void **)&s.data));
    CHECK_OK(strait_runner_state_each(runner, chain_save_one, &s));
    return s;
}

static inline void chain_load(struct strait_runner *runner, struct chain_state *s) {
    s->at = 0;
    CHECK_OK(strait_runner_state_each(runner, chain_load_one, s));
    CHECK_OK(strait_runner_state_restored(runner));
}
