/* mpi_fixture.h - joins and leaves MPI around a group of tests. */
#pragma once

#include "base/program.h"
#include "check.h"
#include "net/mpi/world.h"

/* For groups of tests of the mpi transport, which sends to the rank it is on. */
static int join_mpi(void **state) {
    (void)state;
    CHECK_OK(strait_set_program(TEST_PROGRAM)); // the module lies beside it
    CHECK_OK(strait_mpi_join());
    return 0;
}

static int leave_mpi(void **state) {
    (void)state;
    strait_mpi_leave();
    return 0;
}
