/* swarm_seeds FOLDER - writes the seeds of the fuzz target swarm: one message of every type and
 * kind, from the tables of their layouts. A seed that its parser rejects is an error. */
#include "../unit/swarm/wire_samples.h"
#include "swarm_inputs.h"
#include "swarm_parsers.h"

static struct strait_msg_pool *pool;
static const char *folder;
static int n_seeds;

static strait_err write_seed(int type, int flags, const void *body, size_t size) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/seed-%03d", folder, n_seeds++);
    FILE *file = fopen(path, "wb");
    if (file == NULL) return STRAIT_FAIL(STRAIT_EIO, "cannot write %s", path);
    const unsigned char header[INPUT_HEADER] = {(unsigned char)type, (unsigned char)flags};
    const size_t n = fwrite(header, 1, sizeof header, file) + fwrite(body, 1, size, file);
    return fclose(file) == 0 && n == sizeof header + size
               ? STRAIT_OK
               : STRAIT_FAIL(STRAIT_EIO, "cannot write %s", path);
}

static strait_err write_message(struct strait_msg *msg) {
    STRAIT_TRY(parse_message(pool, msg));
    return write_seed(msg->type, msg->flags, msg->body, msg->size);
}

static strait_err write_all(void) {
    char invite[STRAIT_INVITE_TEXT];
    STRAIT_TRY(strait_msg_pool_open(&pool));
    const strait_err err = each_sample(pool, SMALL_VALUES, write_message);
    strait_msg_pool_close(&pool);
    STRAIT_TRY(err);
    STRAIT_TRY(parse_snapshot(snapshot_sample, sizeof snapshot_sample));
    STRAIT_TRY(write_seed(INPUT_SNAPSHOT, 0, snapshot_sample, sizeof snapshot_sample));
    STRAIT_TRY(invite_sample(invite));
    STRAIT_TRY(parse_invite((const unsigned char *)invite, strlen(invite)));
    return write_seed(INPUT_INVITE, 0, invite, strlen(invite));
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    folder = argv[1];
    if (write_all() == STRAIT_OK) return 0;
    (void)fprintf(stderr, "swarm_seeds: %s\n", strait_err_detail());
    return 1;
}
