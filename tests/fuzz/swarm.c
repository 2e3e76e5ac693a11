/* Fuzzes the parsers of the control plane's messages. The first byte of the input is the type of
 * the message, the second its flags, the rest its body. Two types that no message has, because they
 * belong to the net module, select a snapshot and an invite. */
#include "swarm_inputs.h"
#include "swarm_parsers.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static struct strait_msg_pool *pool;

static void parse_input(uint8_t type, uint8_t flags, const unsigned char *body, size_t size) {
    struct strait_msg *msg = NULL;
    if (strait_msg_open(pool, type, size, &msg) != STRAIT_OK) return;
    msg->flags = flags;
    memcpy(msg->body, body, size);
    (void)parse_message(pool, msg);
    strait_msg_close(&msg);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (pool == NULL && strait_msg_pool_open(&pool) != STRAIT_OK) abort();
    if (size < INPUT_HEADER) return 0;
    const unsigned char *body = data + INPUT_HEADER;
    size -= INPUT_HEADER;
    const uint8_t type = data[0] % INPUT_TYPES; // a random byte is then often a type
    switch (type) {
    case INPUT_SNAPSHOT: (void)parse_snapshot(body, size); break;
    case INPUT_INVITE: (void)parse_invite(body, size); break;
    default: parse_input(type, data[1], body, size); break;
    }
    return 0;
}
