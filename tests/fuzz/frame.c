/* Arbitrary bytes in pieces of any size: the frame reader rejects them or returns valid messages.
 * The first byte of the input is the size of the pieces. */
#include "net/core/frame.h"

#include "net/core/handshake.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    LIMIT = 1 << 16
};

static void check(const struct strait_msg *msg) {
    if (msg->size > LIMIT || msg->priority >= STRAIT_N_PRIORITIES) abort();
    strait_hello hello;
    if (strait_hello_unpack(msg, &hello) == STRAIT_OK &&
        (hello.stream >= hello.n_streams || hello.n_streams > STRAIT_STREAMS_MAX ||
         strnlen(hello.name, sizeof hello.name) == sizeof hello.name))
        abort();
    strait_bye bye;
    strait_bye_unpack(msg, &bye);
    if (strnlen(bye.reason, sizeof bye.reason) == sizeof bye.reason) abort();
}

/* A message that is written and read again is unchanged. */
static void check_round_trip(struct strait_msg_pool *pool, const struct strait_msg *msg) {
    struct strait_frame_reader reader = {.pool = pool, .limit = LIMIT};
    struct strait_msg *back = NULL;
    size_t capacity = 0;
    strait_frame_write(msg, 0, strait_frame_space(&reader, &capacity));
    if (strait_frame_filled(&reader, STRAIT_FRAME_HEADER, &back) != STRAIT_OK) abort();
    if (back == NULL) {
        memcpy(strait_frame_space(&reader, &capacity), msg->body, msg->size);
        if (strait_frame_filled(&reader, msg->size, &back) != STRAIT_OK || back == NULL) abort();
    }
    if (back->size != msg->size || back->step != msg->step || back->type != msg->type) abort();
    strait_msg_close(&back);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct strait_msg_pool *pool = NULL;
    if (size < 1 || strait_msg_pool_open(&pool) != STRAIT_OK) return 0;
    struct strait_frame_reader reader = {.pool = pool, .run = 0x0a0b0c0d, .limit = LIMIT};
    const size_t piece = (size_t)data[0] + 1;
    size_t at = 1;
    while (at < size) {
        size_t n = 0;
        unsigned char *space = strait_frame_space(&reader, &n);
        if (n == 0) abort();
        if (n > piece) n = piece;
        if (n > size - at) n = size - at;
        memcpy(space, data + at, n);
        at += n;
        struct strait_msg *msg = NULL;
        if (strait_frame_filled(&reader, n, &msg) != STRAIT_OK) break;
        if (msg == NULL) continue;
        check(msg);
        check_round_trip(pool, msg);
        strait_msg_close(&msg);
    }
    strait_frame_reader_fini(&reader);
    strait_msg_pool_close(&pool);
    return 0;
}
