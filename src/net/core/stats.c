/* stats.c - see stats.h. */
#include "net/core/stats.h"

static const int64_t longest_ns = (int64_t)3600 * 1000000000; // a longer round trip is not credible

void strait_stats_add_rtt(strait_link_stats *stats, int64_t ns) {
    if (ns <= 0 || ns > longest_ns) return;
    const double rtt = (double)ns * 1e-9;
    /* The same smoothing factor as TCP's (RFC 6298). */
    stats->rtt_s = stats->rtt_s == 0 ? rtt : stats->rtt_s + (rtt - stats->rtt_s) / 8;
    if (stats->rtt_min_s == 0 || rtt < stats->rtt_min_s) stats->rtt_min_s = rtt;
}

void strait_stats_add(strait_link_stats *sum, const strait_link_stats *more) {
    sum->sent_bytes += more->sent_bytes;
    sum->received_bytes += more->received_bytes;
    sum->sent_payload += more->sent_payload;
    sum->received_payload += more->received_payload;
    sum->sent_messages += more->sent_messages;
    sum->received_messages += more->received_messages;
    sum->retransmits += more->retransmits;
}
