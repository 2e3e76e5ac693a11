/* signals.h - Ctrl-C and SIGTERM, counted: the first asks for a tidy end. */
#pragma once

/* From now on interrupts are counted; after the second they take their ordinary course. */
void strait_signals_listen(void);
int strait_signals_count(void);
