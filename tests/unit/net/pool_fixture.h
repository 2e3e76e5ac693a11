/* pool_fixture.h - a message pool of its own for every test of a program. */
#pragma once

#include "check.h"
#include "net/core/msg.h"

static struct strait_msg_pool *pool;

static int set_up(void **state) {
    (void)state;
    return strait_msg_pool_open(&pool) != STRAIT_OK;
}

static int tear_down(void **state) {
    (void)state;
    strait_msg_pool_close(&pool);
    return 0;
}
