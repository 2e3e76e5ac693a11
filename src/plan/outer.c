#include "plan/outer.h"

int strait_outer_n_parts(const strait_outer_schedule *s) {
    return s->fragments + (s->attention_every > 0);
}

int strait_outer_is_whole(const strait_outer_schedule *s, int64_t done) {
    return s->sync_every > 0 && done > 0 && (done <= s->warmup || done == s->steps);
}

/* Fragment f is sent after (f + 1) sync_every / fragments steps of each interval: the last one at
 * its end. Offsets differ, because there are no more fragments than steps. */
int strait_outer_sends(const strait_outer_schedule *s, int64_t done) {
    if (s->sync_every == 0 || done <= s->warmup) return -1;
    const int64_t offset = (done - s->warmup - 1) % s->sync_every + 1;
    for (int f = 0; f < s->fragments; f++)
        if ((f + 1) * s->sync_every / s->fragments == offset) return f;
    return -1;
}

int strait_outer_is_sent(const strait_outer_schedule *s, int part, int64_t done) {
    if (strait_outer_is_whole(s, done)) return 1;
    if (part < s->fragments) return part == strait_outer_sends(s, done);
    return s->sync_every > 0 && done > s->warmup && (done - s->warmup) % s->attention_every == 0;
}

int strait_outer_last_sent(const strait_outer_schedule *s, int64_t done) {
    int part = strait_outer_n_parts(s) - 1;
    while (part >= 0 && !strait_outer_is_sent(s, part, done))
        part--;
    return part;
}

int strait_outer_acts(const strait_outer_schedule *s, int64_t done) {
    if (s->sync_every == 0) return 0;
    return strait_outer_last_sent(s, done) >= 0 || strait_outer_sends(s, done - s->overlap) >= 0;
}

int strait_outer_in_flight(const strait_outer_schedule *s, int64_t done, int64_t *sent_at) {
    if (done >= s->steps) return -1; // the last step leaves nothing in flight
    for (int64_t at = done; at > done - s->overlap; at--) {
        const int fragment = strait_outer_sends(s, at);
        if (fragment < 0) continue;
        *sent_at = at;
        return fragment;
    }
    return -1;
}

double strait_outer_warmup_share(const strait_outer_schedule *s) {
    return s->warmup > 0 ? (double)s->warmup / (double)s->steps : 0.0;
}

double strait_outer_whole_bytes(const strait_outer_schedule *s, strait_outer_bytes_sent bytes) {
    return s->fragments * bytes.fragment + bytes.attention;
}

double strait_outer_step_bytes(const strait_outer_schedule *s, strait_outer_bytes_sent bytes) {
    const double share = strait_outer_warmup_share(s);
    const double fragments = s->fragments * bytes.fragment / (double)s->sync_every;
    const double attention = s->attention_every > 0 ? bytes.attention / (double)s->attention_every
                                                    : 0.0;
    return share * strait_outer_whole_bytes(s, bytes) + (1.0 - share) * (fragments + attention);
}
