#include "swarm/host/verify/claims.h"

#include <math.h>
#include <string.h>

enum {
    FIRST_VALUES = 3, // of a level, which nothing can be compared with
    SPREAD_MIN = 4,   // values that are not 0; fewer may be alike
    LOSS_WINDOW = 3   // losses fall quickly at the start of a run
};

static const double slowest_bytes_per_s = 125e3; // of a link that a stage can be copied over
static const double encrypt_bytes_per_s = 100e6;
static const double copy_extra_s = 10.0;
static const double longest_delay_s = 10.0; // one way between neighbours
static const double most_residual = 1e3;    // relative to what was encoded
static const double most_device = 1e15;     // bytes
static const double most_flops = 1e18;      // per second: above any machine of one worker
static const double most_count = 1e15;
static const double basis_slack = 1e-2;
static const double most_loss = 4.0;   // times that of a uniform guess
static const double loss_slack = 1e-3; // per token: rounding of a loss that is almost 0

/* Honest runs jump: of 80 tiny ones with batches of 16 to 512 tokens, which differed in seed, size,
 * codec, optimizer and warmup, one had squares 16 octaves outside the range of recent ones, one a
 * loss 0.7 octaves, and none a spread below 0.7. */
static const double loss_octaves = 0.8;     // a factor of 1.74
static const double valid_octaves = 0.6;    // more tokens, but steps apart: a lie is less far off
static const double loss_offset = 0.25;     // per token: a loss near 0 may double from step to step
static const double squares_octaves = 24.0; // of a stage: a factor of 4096 in the norm
static const double least_spread = 0.1;     // octaves between the squares of a stage

typedef enum claim_rule {
    MATCHED,    // compared with what the coordinator expects where it is handled
    SHOWN,      // text for people, or an address that is tried
    SPENT,      // seconds, no longer than the command took
    DELAY,      // seconds
    SNAPSHOT,   // seconds
    COPY,       // seconds
    LOSS,       // sum over the tokens, only of the last stage
    SQUARES,    // one per parameter; non-finite ones are verified by recomputing the step
    BASIS,      // orthonormal, so no value exceeds 1
    COUNT,      // of values or snapshots
    CROSSING,   // bytes
    RESIDUAL,   // relative error, or an angle
    DEVICE,     // bytes
    SPEED,      // FLOP per second
    COORDINATED // by the coordinator: snapshots, and progress
} claim_rule;

static const struct {
    const char *field;
    claim_rule rule;
} bounds[] = {
    /* every reply */
    {"kind", MATCHED},
    {"generation", MATCHED},
    {"sequence", MATCHED},
    {"err", MATCHED},
    {"reason", SHOWN},
    {"failed_side", COORDINATED},
    {"device_bytes", DEVICE},
    {"device_free", DEVICE},
    {"rejected_copies_prev", COUNT},
    {"rejected_copies_next", COUNT},
    /* replies to commands */
    {"open.device", SHOWN},
    {"time_passes.times.forward", SPENT},
    {"time_passes.times.input", SPENT},
    {"time_passes.times.weights", SPENT},
    {"time_passes.times.codec", SPENT},
    {"time_passes.times.wait", SPENT},
    {"time_passes.times.wall", SPENT},
    {"time_passes.next_delay_s", DELAY},
    {"gradients.loss_sum", LOSS},
    {"gradients.times.forward", SPENT},
    {"gradients.times.input", SPENT},
    {"gradients.times.weights", SPENT},
    {"gradients.times.codec", SPENT},
    {"gradients.times.wait", SPENT},
    {"gradients.times.wall", SPENT},
    {"gradients.forward_bytes", CROSSING},
    {"gradients.backward_bytes", CROSSING},
    {"gradients.reduce_bytes", CROSSING},
    {"gradients.residual_forward", RESIDUAL},
    {"gradients.residual_backward", RESIDUAL},
    {"gradients.basis.leak", RESIDUAL},
    {"gradients.basis.corrections", COUNT},
    {"gradients.basis.angle", RESIDUAL},
    {"gradients.basis.mean_angle", RESIDUAL},
    {"gradients.basis.error", RESIDUAL},
    {"gradients.faults.nonfinite", COUNT},
    {"gradients.faults.rejected_prev", COUNT},
    {"gradients.faults.rejected_next", COUNT},
    {"gradients.squares", SQUARES},
    {"save.digest", MATCHED},
    {"update.snapshot_s", SNAPSHOT},
    {"update.copy_s", COPY},
    {"update.link_bps", SPEED},
    {"validate.loss_sum", LOSS},
    {"validate.faults.nonfinite", COUNT},
    {"validate.faults.rejected_prev", COUNT},
    {"validate.faults.rejected_next", COUNT},
    {"propose_basis.basis", BASIS},
    {"outer.is_complete", MATCHED}, // a false one is refused by APPLY, or begins it again
    {"outer.missing", MATCHED},     // with what others say
    {"outer.withheld", MATCHED},
    {"outer.rejected", MATCHED},
    {"outer.distance", COUNT},
    {"outer.size", COUNT},
    {"outer.bytes", CROSSING},
    {"probe.from_prev_bps", SPEED}, // compared with what the other end says
    {"probe.from_next_bps", SPEED},
    {"probe.to_prev_bps", SPEED},
    {"probe.to_next_bps", SPEED},
    /* replies to tasks */
    {"assign.address", SHOWN},
    {"restore.is_source_bad", MATCHED},
    {"audit_step.", MATCHED}, // with what replicas stated, and with other auditors'
    {"audit_end.", MATCHED},  // with the owner's, and with other auditors'
    /* audits */
    {"stage", MATCHED},
    {"interval.", MATCHED}, // with what the neighbours say, and with audits
    {"audit", MATCHED},
    {"step", MATCHED}, // the one that is computed
    {"row", MATCHED},  // with what the others state, and with audits
    /* joining and heartbeats */
    {"token", MATCHED},
    {"report.memory_bytes", DEVICE},
    {"report.flops", SPEED},
    {"report.up_bps", SPEED},
    {"report.down_bps", SPEED},
    {"report.is_reachable", MATCHED},
    {"report.name", SHOWN},
    {"report.device", SHOWN},
    {"progress", COORDINATED},
    {"waits_for", COORDINATED},
    {"arrived.", COORDINATED},
    {"inventory.", COORDINATED}, // all fields that begin so
};

/* Returns the row of a field; -1: it has none. */
static int find_bound(const char *field) {
    for (int i = 0; i < (int)(sizeof bounds / sizeof *bounds); i++) {
        const size_t n = strlen(bounds[i].field);
        const int is_prefix = bounds[i].field[n - 1] == '.';
        if (strncmp(field, bounds[i].field, n) == 0 && (is_prefix || field[n] == '\0')) return i;
    }
    return -1;
}

int strait_claims_has_bound(const char *field) {
    return find_bound(field) >= 0;
}

/* ---- numbers ---- */

static double read_number(const strait_field *field, const void *at) {
    switch (field->type) {
    case STRAIT_FIELD_INT: return *(const int *)at;
    case STRAIT_FIELD_U64: return (double)*(const uint64_t *)at;
    case STRAIT_FIELD_F64: return *(const double *)at;
    default: return 0.0; // the table bounds no other type by a number
    }
}

static void write_number(const strait_field *field, void *at, double value) {
    if (field->type == STRAIT_FIELD_INT) *(int *)at = (int)value;
    if (field->type == STRAIT_FIELD_U64) *(uint64_t *)at = (uint64_t)value;
    if (field->type == STRAIT_FIELD_F64) *(double *)at = value;
}

/* The largest value of a rule that has one. */
static double most_of(claim_rule rule, const strait_claims_limits *limits) {
    switch (rule) {
    case SPENT: return limits->elapsed_s;
    case DELAY: return longest_delay_s;
    case SNAPSHOT: return limits->elapsed_s + limits->snapshot_bytes / encrypt_bytes_per_s;
    case COPY: return limits->snapshot_bytes / slowest_bytes_per_s + copy_extra_s;
    case COUNT: return most_count;
    case CROSSING: return limits->crossing_bytes;
    case RESIDUAL: return most_residual;
    case DEVICE: return most_device;
    case SPEED: return most_flops;
    default: return HUGE_VAL;
    }
}

/* Estimates may be infinite, on a link that carries nothing, and a residual is NaN where values are
 * non-finite. What was measured or counted is always a number. */
static int is_impossible(claim_rule rule, double value) {
    if (rule == RESIDUAL && isnan(value)) return 0;
    if (rule == SPENT || rule == COUNT) return !(value >= 0.0) || isinf(value);
    return !(value >= 0.0);
}

/* A loss that is not finite is a fault of the step, which is verified elsewhere. */
static int is_loss(double value, const strait_claims_limits *limits) {
    if (!limits->is_last) return value == 0.0;
    return isnan(value) || value >= -loss_slack * limits->tokens;
}

static int are_squares(const strait_floats *squares, const strait_claims_limits *limits) {
    for (int i = 0; i < squares->n; i++)
        if (squares->data[i] < 0.0f) return 0;
    return squares->n == limits->n_squares;
}

static int is_basis(const strait_floats *basis, const strait_claims_limits *limits) {
    for (int i = 0; i < basis->n; i++)
        if (!(fabs((double)basis->data[i]) <= 1.0 + basis_slack)) return 0;
    return basis->n == limits->n_basis;
}

/* ---- checking ---- */

static void report(strait_claims_finding *out, const char *field, int impossible, double value) {
    if (out->field != NULL && (out->is_impossible || !impossible)) return;
    *out = (strait_claims_finding){field, impossible, value};
}

static void check_number(const strait_field *field, void *at, claim_rule rule,
                         const strait_claims_limits *limits, strait_claims_finding *out) {
    const double value = read_number(field, at);
    const double most = most_of(rule, limits);
    if (is_impossible(rule, value)) {
        report(out, field->name, 1, value);
    } else if (value > most) {
        write_number(field, at, most);
        report(out, field->name, 0, value);
    }
}

static void check_field(const strait_field *field, void *at, const strait_claims_limits *limits,
                        strait_claims_finding *out) {
    const int row = find_bound(field->name);
    const claim_rule rule = row < 0 ? MATCHED : bounds[row].rule;
    switch (rule) {
    case MATCHED:
    case SHOWN:
    case COORDINATED: break;
    case LOSS:
        if (!is_loss(*(double *)at, limits)) report(out, field->name, 1, *(double *)at);
        break;
    case SQUARES:
        if (!are_squares(at, limits)) report(out, field->name, 1, ((strait_floats *)at)->n);
        break;
    case BASIS:
        if (!is_basis(at, limits)) report(out, field->name, 1, ((strait_floats *)at)->n);
        break;
    default: check_number(field, at, rule, limits, out); break;
    }
}

void strait_claims_check(const strait_layout *layout, void *object,
                         const strait_claims_limits *limits, strait_claims_finding *out) {
    for (int i = 0; i < layout->n_fields; i++)
        check_field(&layout->fields[i], (char *)object + layout->fields[i].offset, limits, out);
}

/* ---- levels ---- */

/* How far a value is outside the range of recent ones; infinite for 0, and for what is no number.
 */
static double distance(const strait_claims_level *level, double value) {
    const double octave = log2(value);
    const int window = level->window > 0 ? level->window : STRAIT_CLAIMS_RECENT;
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    for (int i = 1; i <= level->n_seen && i <= window; i++) { // from the newest on
        const double recent = level->recent[(level->n_seen - i) % STRAIT_CLAIMS_RECENT];
        least = fmin(least, recent);
        most = fmax(most, recent);
    }
    if (!isfinite(octave)) return HUGE_VAL;
    return fmax(0.0, fmax(least - octave, octave - most));
}

static int is_settled(const strait_claims_level *level) {
    return level->n_seen >= FIRST_VALUES;
}

int strait_claims_is_plausible(const strait_claims_level *level, double octaves, double value) {
    if (!is_settled(level)) return 1;
    return distance(level, value) <= fmax(octaves, level->widest);
}

void strait_claims_accept(strait_claims_level *level, double value) {
    if (!(value > 0.0) || !isfinite(value)) return;
    if (is_settled(level)) level->widest = fmax(level->widest, distance(level, value));
    level->recent[level->n_seen % STRAIT_CLAIMS_RECENT] = log2(value);
    /* The count stays small, and keeps its place in the ring. */
    level->n_seen += level->n_seen < 2 * STRAIT_CLAIMS_RECENT - 1 ? 1 : 1 - STRAIT_CLAIMS_RECENT;
}

/* ---- losses and squares ---- */

int strait_claims_is_loss_possible(int64_t vocab, double loss) {
    return loss <= most_loss * log((double)vocab);
}

int strait_claims_is_loss_plausible(const strait_claims_level *level, double loss) {
    return strait_claims_is_plausible(level, loss_octaves, loss + loss_offset);
}

int strait_claims_is_valid_loss_plausible(const strait_claims_level *level,
                                          const strait_claims_level *training, double loss) {
    return strait_claims_is_plausible(level, valid_octaves, loss + loss_offset) ||
           strait_claims_is_plausible(training, valid_octaves, loss + loss_offset);
}

void strait_claims_accept_loss(strait_claims_level *level, double loss) {
    level->window = LOSS_WINDOW;
    strait_claims_accept(level, loss + loss_offset);
}

static double sum_of(const strait_floats *squares) {
    double sum = 0.0;
    for (int i = 0; i < squares->n; i++)
        sum += (double)squares->data[i];
    return sum;
}

/* Returns the standard deviation, in octaves, of those that are not 0: a token table gets no
 * gradient in a step without its tokens. */
static double spread_of(const strait_floats *squares) {
    double sum = 0.0;
    double sum_squared = 0.0;
    int n = 0;
    for (int i = 0; i < squares->n; i++) {
        if (!(squares->data[i] > 0.0f)) continue;
        const double octave = log2((double)squares->data[i]);
        sum += octave;
        sum_squared += octave * octave;
        n++;
    }
    if (n < SPREAD_MIN) return HUGE_VAL;
    return sqrt(fmax(0.0, sum_squared / n - (sum / n) * (sum / n)));
}

int strait_claims_are_squares_plausible(const strait_claims_level *level,
                                        const strait_floats *squares) {
    return strait_claims_is_plausible(level, squares_octaves, sum_of(squares)) &&
           spread_of(squares) >= least_spread;
}

void strait_claims_accept_squares(strait_claims_level *level, const strait_floats *squares) {
    strait_claims_accept(level, sum_of(squares));
}
