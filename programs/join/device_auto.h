/* device_auto.h - "--device auto": a GPU if there is a usable one, else the processor. */
#pragma once

#include <strait/error.h>

enum {
    STRAIT_DEVICE_REASON = 200 // bytes of the reason
};

/* Returns "cuda" if device `ordinal` can be opened, else "cpu", and says why in `reason`. A child
 * process tries: the driver's threads and files must not be open in a process that is confined
 * later. */
const char *strait_device_auto(int ordinal, char reason[STRAIT_DEVICE_REASON]);
