/* listen.h - where a monitor listens, whom it needs a token of, and what its page may load. */
#pragma once

#include "monitor/server.h"

/* Starts the daemon of `monitor`, and sets its token and url. STRAIT_ECONFIG: the address cannot be
 * listened on. */
strait_err strait_listen_open(struct strait_monitor *monitor, const char *address,
                              const char *token);

/* The Content-Security-Policy: only the script and the style of the embedded page, by their hashes,
 * and requests to where it came from. */
strait_err strait_listen_policy(char *out, size_t capacity);
