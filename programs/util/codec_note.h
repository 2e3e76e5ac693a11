/* codec_note.h - what a codec changes besides the bytes that cross, said before a run begins. */
#pragma once

#include <strait/run.h>

/* Prints notes on standard error: keys of another codec that were dropped, and, where the codec
 * changes the model or learning rates, the parameters with and without it and the keys it sets. */
void strait_codec_note(const struct strait_run *run);
