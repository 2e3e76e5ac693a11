#include "stage/process/stage_process.h"

#include "base/alloc.h"
#include "stage/service.h"

#include <stdio.h>
#include <string.h>

enum {
    LEAVE_MS = 3000 // for the coordinator to receive the last reply and close the link
};

struct process {
    strait_startup start;
    strait_run run;
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    int coordinator; // peer of the mesh
    struct strait_service *service;
    struct strait_msg *command; // received while the stage was busy; NULL: none
};

/* Where the previous stage can dial this one; the system chooses the port. */
static strait_err listen_address(const struct process *p, int is_inproc,
                                 char out[STRAIT_STARTUP_LINE]) {
    char host[STRAIT_ADDRESS_MAX];
    if (strcmp(p->start.scheme, "mpi") == 0) {
        out[0] = '\0'; // the endpoint has an address already
        return STRAIT_OK;
    }
    if (is_inproc) {
        (void)snprintf(out, STRAIT_STARTUP_LINE, "stage-%d-%d", p->start.stage, p->start.replica);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_startup_expand(p->run.stages.address, p->start.stage, host, sizeof host));
    (void)snprintf(out, STRAIT_STARTUP_LINE, "%s:0", host);
    return STRAIT_OK;
}

static strait_err open_mesh(struct process *p, struct strait_inproc_network *network) {
    strait_mesh_config config = {.scheme = p->start.scheme,
                                 .transport = {.identity = p->identity,
                                               .n_streams = (int)p->run.link.streams,
                                               .peer_timeout_ms = (int)(p->run.link.deadline * 1e3),
                                               .network = network}};
    memcpy(config.transport.run, p->start.run_id, STRAIT_RUN_BYTES);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", p->start.stage);
    return strait_mesh_open(&config, &p->mesh);
}

/* Exchanges the startup lines, then dials the coordinator. */
static strait_err introduce(struct process *p, int in, int out,
                            struct strait_inproc_network *network) {
    char line[STRAIT_STARTUP_LINE];
    char key[STRAIT_FINGERPRINT_TEXT];
    char address[STRAIT_ADDRESS_MAX];
    STRAIT_TRY(strait_startup_read_line(in, line));
    STRAIT_TRY(strait_startup_parse(line, &p->start));
    STRAIT_TRY(strait_run_init_file(p->start.run_path, NULL, 0, &p->run));
    STRAIT_TRY(strait_identity_generate(&p->identity));
    STRAIT_TRY(open_mesh(p, network));
    STRAIT_TRY(listen_address(p, network != NULL, line));
    STRAIT_TRY(strait_mesh_listen(p->mesh, line, address));
    strait_fingerprint_text(strait_identity_fingerprint(p->identity), key);
    (void)snprintf(line, sizeof line, "%s %s\n", key, address);
    STRAIT_TRY(strait_startup_write_line(out, line));
    /* The coordinator admits this stage only after it has read the key: wait for its second line.
     */
    STRAIT_TRY(strait_startup_read_line(in, line));
    const strait_mesh_peer coordinator = {
        .name = "coordinator", .key = p->start.coordinator, .address = p->start.address};
    return strait_mesh_add(p->mesh, &coordinator, &p->coordinator);
}

/* Replicas that train on their own go on without one that is lost. */
static int may_lose(const struct process *p, int peer) {
    strait_stage_side side;
    int replica;
    return p->service != NULL && strait_run_plan_has_outer(strait_service_plan(p->service)) &&
           strait_stage_links_find(strait_service_links(p->service), peer, &side, &replica) &&
           side == STRAIT_SIDE_SAME;
}

/* A command waits until the stage is free; a lost link ends the run. */
static strait_err on_message(void *user, struct strait_msg **msg) {
    struct process *p = user;
    const struct strait_msg *m = *msg;
    if (m->type == STRAIT_MSG_COMMAND && m->peer == p->coordinator && p->command == NULL) {
        p->command = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (m->type == STRAIT_MSG_UP) return STRAIT_OK;
    if (m->type != STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: unexpected message of type %d", p->start.stage,
                           m->type);
    if (may_lose(p, m->peer)) return STRAIT_OK;
    char peer[STRAIT_NAME_MAX] = "the coordinator";
    if (m->peer != p->coordinator && p->service != NULL)
        strait_stage_links_name(strait_service_links(p->service), strait_service_plan(p->service),
                                p->start.stage, m->peer, peer);
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to %s: %.*s", p->start.stage, peer,
                       (int)m->size, (const char *)m->body);
}

/* A stage with late updates begins the next step before the current one ends. What else waits is
 * read when its turn comes. */
static int on_next(void *user, int64_t step, strait_next_step *out) {
    const struct process *p = user;
    const strait_float_memory floats = strait_service_floats(p->service);
    strait_stage_command next;
    if (p->command == NULL || strait_stage_command_unpack(p->command, floats, &next) != STRAIT_OK ||
        next.kind != STRAIT_COMMAND_GRADIENTS || next.gradients.step != step)
        return 0;
    *out = (strait_next_step){next.gradients.has_update ? step - 2 : -1, next.gradients.factor};
    return 1;
}

static strait_err wait_for_command(struct process *p) {
    while (p->command == NULL) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(p->mesh, -1, &msg));
        const strait_err err = strait_service_route(p->service, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Stays until the coordinator closes the link, unless it has: by then it has received the replies
 * of all stages. Neighbours may leave earlier. */
static void wait_for_goodbye(struct process *p) {
    for (int is_over = !strait_mesh_is_up(p->mesh, p->coordinator); !is_over;) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(p->mesh, LEAVE_MS, &msg) != STRAIT_OK) return;
        is_over = msg->type == STRAIT_MSG_DOWN && msg->peer == p->coordinator;
        strait_msg_close(&msg);
    }
}

/* Reports a failure that no command asked about. */
static strait_err report_failure(struct process *p, strait_err err) {
    char reason[512];
    (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
    const strait_stage_reply reply = {.kind = STRAIT_COMMAND_LEAVE, .err = err, .reason = reason};
    if (strait_stage_reply_send(p->mesh, p->coordinator, &reply) != STRAIT_OK)
        return STRAIT_FAIL(err, "%s", reason);
    wait_for_goodbye(p);
    return STRAIT_OK;
}

static strait_err execute_next(struct process *p, int *goes_on) {
    strait_stage_command command = {.kind = STRAIT_COMMAND_LEAVE};
    strait_stage_reply reply = {0};
    struct strait_msg *msg = p->command;
    p->command = NULL;
    strait_err err = strait_stage_command_unpack(msg, strait_service_floats(p->service), &command);
    if (err == STRAIT_OK) {
        err = strait_service_execute(p->service, &command, &reply);
    } else {
        reply = (strait_stage_reply){
            .kind = STRAIT_COMMAND_LEAVE, .err = err, .reason = strait_err_detail()};
    }
    reply.generation = command.generation;
    reply.sequence = command.sequence;
    strait_msg_close(&msg); // texts of the command pointed into it until now
    /* Only a checkpoint that could not be written leaves the stage as it was. */
    *goes_on = err == STRAIT_OK ? command.kind != STRAIT_COMMAND_LEAVE
                                : command.kind == STRAIT_COMMAND_SAVE;
    return strait_stage_reply_send(p->mesh, p->coordinator, &reply);
}

static strait_err execute_commands(struct process *p) {
    for (int goes_on = 1; goes_on;) {
        const strait_err err = wait_for_command(p);
        if (err != STRAIT_OK) return report_failure(p, err);
        STRAIT_TRY(execute_next(p, &goes_on));
    }
    wait_for_goodbye(p);
    return STRAIT_OK;
}

/* The neighbours are not known yet: the coordinator sends them once all stages are listening. */
static strait_err open_service(struct process *p) {
    struct strait_loader *loader = NULL;
    const strait_service_spec spec = {
        .run = &p->run,
        .stage = p->start.stage,
        .replica = p->start.replica,
        .hooks = {.user = p, .on_message = on_message, .on_next = on_next}};
    STRAIT_TRY(strait_loader_open(&p->run, &loader));
    STRAIT_TRY(strait_service_open(&spec, &loader, &p->service));
    strait_service_set_links(p->service, p->mesh, -1, -1);
    return STRAIT_OK;
}

/* An error before the first command is reported as well: the coordinator waits for an answer. */
static strait_err work(struct process *p) {
    const strait_err err = open_service(p);
    return err == STRAIT_OK ? execute_commands(p) : report_failure(p, err);
}

strait_err strait_stage_process_run(int in, int out, struct strait_inproc_network *network) {
    struct process *p = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *p, "stage process", (void **)&p));
    strait_err err = introduce(p, in, out, network);
    if (err == STRAIT_OK) err = work(p);
    strait_service_close(&p->service);
    strait_msg_close(&p->command);
    strait_mesh_close(&p->mesh);
    strait_identity_close(&p->identity);
    strait_alloc_free(p);
    return err;
}
