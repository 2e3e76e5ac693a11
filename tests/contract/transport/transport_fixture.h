/* transport_fixture.h - a pair of transports of its own for every test of a program. */
#pragma once

#include "contract/transport/transport_rig.h"

static struct rig r;

/* The initial state of a test is its scheme; NULL: TLS. */
static int set_up(void **state) {
    rig_open(&r, *state != NULL ? *state : "tls");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rig_close(&r);
    return 0;
}
