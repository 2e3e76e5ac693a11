/* relayed.c - how the workers of pipelines that average reach each other: directly, or at the
 * relay, and how much of the averages crosses it. A worker exchanges crossings with the neighbours
 * in its pipeline and averages with the other workers of its stage, and with nobody else. */
#include "base/bytes.h"
#include "base/digest/sha256.h"
#include "net/relay/relay_secret.h"
#include "stage/limits.h"
#include "swarm/host/replicas.h"

#include <math.h>
#include <string.h>

/* Where a spare listens is known only when it has a stage. */
static int can_dial(struct host *h, int from, int to) {
    const struct connection *theirs = strait_host_connection(h, to);
    if (theirs == NULL || theirs->address[0] == '\0')
        return h->coordinator.workers[to].report.is_reachable;
    return strait_host_can_dial(strait_host_connection(h, from), theirs);
}

/* Those that were sent away for a failure may not be where they seem: each time they come back they
 * try the other way. */
int strait_host_needs_relay(struct host *h, int worker, int other) {
    const struct strait_coordinator *c = &h->coordinator;
    const int n_away = c->workers[worker].n_sent_away | c->workers[other].n_sent_away;
    if (h->spec->relay != NULL && c->config.has_pipelines && n_away % 2 != 0) return 1;
    return !can_dial(h, worker, other) && !can_dial(h, other, worker);
}

/* Both ends get the same address in all phases of a generation; only they and we know its token. */
void strait_host_relay_address(struct host *h, int worker, int other,
                               char out[STRAIT_ADDRESS_MAX]) {
    struct host_averages *averages = &h->averages;
    unsigned char pair[12];
    strait_digest digest;
    strait_relay_token token;
    out[0] = '\0';
    strait_put_u32(pair, h->coordinator.generation);
    strait_put_u32(pair + 4, (uint32_t)(worker < other ? worker : other));
    strait_put_u32(pair + 8, (uint32_t)(worker < other ? other : worker));
    if (!averages->has_secret &&
        strait_identity_random(averages->secret, sizeof averages->secret) != STRAIT_OK)
        return;
    averages->has_secret = 1;
    if (strait_hmac_sha256(averages->secret, sizeof averages->secret, pair, sizeof pair, &digest) !=
        STRAIT_OK)
        return;
    memcpy(token.bytes, digest.bytes, sizeof token.bytes);
    (void)strait_relay_secret_address(h->spec->relay_secret, h->spec->relay, &token, out,
                                      STRAIT_ADDRESS_MAX);
}

/* ---- the relay's share ---- */

/* Of a pair of replicas, were there `n` of each stage; in each direction. */
static double pair_bps(struct host *h, int stage, int n) {
    const strait_run_plan *plan = &h->executor->plan;
    const double planned = h->executor->planned_tokens_per_s;
    const int limit = h->coordinator.config.replicas_limit;
    double step_s = h->pace.step_s;
    strait_runner_memory memory;
    if (step_s <= 0.0 && planned > 0.0) step_s = (double)h->run.train.batch_tokens / planned;
    if (step_s <= 0.0 || strait_runner_plan(plan, stage, 1, &memory) != STRAIT_OK) return INFINITY;
    return strait_limits_pair_bps(plan, memory.averaged, limit, step_s) * limit / n;
}

double strait_host_relayed_bps(struct host *h, const int *slots) {
    const struct strait_coordinator *c = &h->coordinator;
    const int n = strait_coordinator_n_replicas(c, 0);
    double bps = 0.0;
    for (int i = 0; i < c->config.n_stages; i++) {
        int n_pairs = 0;
        for (int a = 0; a <= n; a++)
            for (int b = 0; b < a; b++)
                n_pairs += strait_host_needs_relay(
                    h, a == n ? slots[i] : strait_coordinator_replica(c, i, a),
                    strait_coordinator_replica(c, i, b));
        if (n_pairs > 0) bps += n_pairs * pair_bps(h, i, n + 1);
    }
    return bps;
}
