/* invite_source.h - where a command takes its invite from. An argument can be read by every user of
 * the machine while the program runs; a file, standard input and the environment cannot. */
#pragma once

#include "commands.h"
#include "swarm/invite.h"

/* Reads the invite from its argument, from standard input if that is "-", from `file` unless NULL,
 * or from the environment variable STRAIT_INVITE. STRAIT_ECONFIG: none or two are given, or it is
 * damaged; STRAIT_EIO: the file cannot be read. */
strait_err strait_invite_from(const strait_command *command, int n_args, const char **args,
                              const char *file, strait_invite *out);

enum {
    STRAIT_INVITE_LINE = 2 * STRAIT_INVITE_TEXT // with blanks around the invite
};

/* Reads the line that holds an invite from standard input. STRAIT_EIO: there is none. */
strait_err strait_invite_read_input(char out[STRAIT_INVITE_LINE]);
