/* probes.h - what a host knows of the links of its run; codec.h has the functions. */
#pragma once

#include "train/outlook/measured.h"

struct host_probes {
    int is_measuring; // the stages are built for a measurement alone
    int is_known;     // it gave a result
    strait_measured measured;
    uint64_t differ;    // bit i: the ends of boundary i contradict each other
    int64_t checked_ns; // when the links were last measured; 0: not by this host
    uint64_t told;      // bit i: a warning about boundary i was given
};
