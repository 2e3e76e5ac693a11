/* memory_hub.h - the memory backend for tests: all metastores of a process that share a hub share
 * its entries, its leader and a clock that the test moves.
 *
 * Entries live as long as the hub. One thread at a time uses a hub. */
#pragma once

#include "metastore/metastore.h"

/* The clock starts at 0 and moves only by strait_metastore_hub_pass. */
strait_err strait_metastore_hub_open(struct strait_metastore_hub **out);
void strait_metastore_hub_close(
    struct strait_metastore_hub **hub); // accepts NULL; close its metastores first

/* Advances the clock: leases expire. */
void strait_metastore_hub_pass(struct strait_metastore_hub *hub, int64_t ms);

/* From now on every call fails with `err`, as with an unreachable cluster or a full disk; STRAIT_OK
 * ends that. With `is_late`, commits take effect and are then reported as failed. */
void strait_metastore_hub_break(struct strait_metastore_hub *hub, strait_err err, int is_late);
