#include "plan/outer.h"

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

int strait_outer_acts(const strait_outer_schedule *s, int64_t done) {
    if (s->sync_every == 0) return 0;
    return strait_outer_is_whole(s, done) || strait_outer_sends(s, done) >= 0 ||
           strait_outer_sends(s, done - s->overlap) >= 0;
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

double strait_outer_frequency(const strait_outer_schedule *s) {
    const double share = strait_outer_warmup_share(s);
    return share + (1.0 - share) / (double)s->sync_every;
}
