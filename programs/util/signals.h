/* signals.h - counts SIGINT, SIGTERM and SIGHUP, so that a command can finish its work cleanly. */
#pragma once

/* Counts the first n signals from now on; later ones end the process as usual. Signals within half
 * a second of each other count as one. Also ignores SIGPIPE.
 */
void strait_signals_listen(int n);
int strait_signals_count(void); // signals received so far; any thread
