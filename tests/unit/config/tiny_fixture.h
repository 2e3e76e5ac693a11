/* tiny_fixture.h - a tiny run in a scratch folder of its own, for every test of a program. */
#pragma once

#include "tiny_run.h"

static strait_run run;
static scratch folder;

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    tiny_run(&folder, &run);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}
