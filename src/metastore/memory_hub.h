/* record_hub.h - the memory store: records of one process meet in a hub, in time a test moves.
 *
 * Facts live as long as the hub. A hub is used by one thread at a time. */
#pragma once

#include "metastore/metastore.h"

/* Time starts at 0 and stands still. */
strait_err strait_metastore_hub_open(struct strait_metastore_hub **out);
void strait_metastore_hub_close(
    struct strait_metastore_hub **hub); // accepts NULL; after its records

/* Lets time pass: leases run out. */
void strait_metastore_hub_pass(struct strait_metastore_hub *hub, int64_t ms);

/* From now on every call of its records fails with this, as a lost cluster or a full disk would;
 * STRAIT_OK ends it. With `is_late`, commits happen and are then reported as failed. */
void strait_metastore_hub_break(struct strait_metastore_hub *hub, strait_err err, int is_late);
