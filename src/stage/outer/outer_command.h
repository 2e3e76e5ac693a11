/* outer_command.h - a runner's part in the exchanges of an outer step. */
#pragma once

#include "stage/commands.h"
#include "stage/runner.h"

/* Executes one phase of an exchange (STRAIT_COMMAND_OUTER). SUM waits until link.deadline passes
 * without a message, the links to all replicas that are missing are down for two seconds, or, in a
 * swarm, more time has passed than the bytes take on a slow link (strait_outer_limit_ns); the
 * reply then says who is missing, which is no error. STRAIT_EPROTO: the run has no outer step. */
strait_err strait_runner_outer(struct strait_runner *runner, const strait_stage_command *command,
                               strait_stage_reply *reply);

/* A replica that was restored from another's state takes the averaged weights; nothing without an
 * outer step. */
strait_err strait_runner_catch_up(struct strait_runner *runner);
