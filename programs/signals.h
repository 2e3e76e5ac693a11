/* signals.h - Ctrl-C, SIGTERM and a terminal that closes, counted: the first asks for a tidy end.
 */
#pragma once

/* From now on interrupts are counted; those after the first n take their ordinary course. */
void strait_signals_listen(int n);
int strait_signals_count(void); // any thread
