/* codec_note.h - what a codec changes besides the bytes that cross, said before a run begins. */
#pragma once

#include <strait/run.h>

/* Prints notes on standard error: keys of another codec that were dropped, and, where the codec
 * changes the model or learning rates, the parameters with and without it and the keys it sets. */
void strait_codec_note(const struct strait_run *run);

/* Chooses the codec of a run that leaves it to the program (link.codec.name auto), or takes that of
 * the run in `folder` (NULL: none), and prints the choice on standard error. `is_swarm`: for
 * workers, whose speed is taken to be that of this machine; where the run file gives no rates, the
 * codec is auto by default and stays so, for the host to measure. */
strait_err strait_codec_choose(struct strait_run *run, const char *folder, int is_swarm);
