/* meter.h - the wire as Protocol NanoGPT counts it, in simulated time.
 *
 * Every stage has one inbound wire, shared by activations from the stage before and gradients from
 * the stage after:
 *
 *     arrives = max(wire free, sent) + bits / rate + delay
 *
 * The wire counts as busy until the message has arrived, so the delay is charged to every message
 * in turn. That is harder than any real link, where messages follow each other through the delay;
 * with is_pipelined the wire is free again as soon as the last bit was put on it. */
#pragma once

typedef struct strait_meter_spec {
    double rate_bps; // > 0
    double delay_s;
    int is_pipelined;
} strait_meter_spec;

/* 200 Mb/s, 50 ms, delay charged in turn. */
strait_meter_spec strait_meter_protocol_nanogpt(void);

/* One inbound wire; zeroed is idle at time 0. */
typedef struct strait_meter {
    double free_s;
    double busy_s; // time spent putting bits on the wire, without the delay
    double bytes;
} strait_meter;

/* When a message sent at `sent_s` has arrived. Call in the order the messages are sent. */
double strait_meter_arrive(strait_meter *meter, const strait_meter_spec *spec, double sent_s,
                           double bytes);
