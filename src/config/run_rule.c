#include "config/run_rule.h"

#include "codec/strait/rule.h"
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char rule_key[] = "link.codec.rule";

/* The ratio that the user asks for; 0: none. */
static double ratio_of(const strait_run *run) {
    const double bytes = run->link.codec.bytes_per_token;
    return bytes > 0 ? 2.0 * (double)run->model.width / bytes : run->link.codec.ratio;
}

static int is_muon(const strait_run *run) {
    return strcmp(strait_optimizer_names[run->train.optimizer], "muon") == 0;
}

static void set_real(strait_run *run, const char *key, double *field, double value) {
    if (!strait_run_is_given(run, key)) *field = value;
}

/* Whether a stage of these layers has a token table: a local block other than the first. */
static int has_table(const strait_run *run, int64_t first, int64_t last) {
    const int64_t every = run->model.local_every, local = (first + every - 1) / every * every;
    return local < last;
}

/* Gates need a token table in every stage but the first. Stages begin with a local block, unless
 * the user divides the layers. */
static int has_tables(const strait_run *run) {
    int64_t first = 0;
    for (int i = 0; i < run->stages.split.n; i++) {
        const int64_t last = first + run->stages.split.items[i];
        if (i > 0 && !has_table(run, first, last)) return 0;
        first = last;
    }
    return run->model.anchors;
}

static void set_gates(strait_run *run, const strait_codec_rule *rule) {
    const int has_width = strait_run_is_given(run, "link.codec.gate_width");
    if (!strait_run_is_given(run, "link.codec.gains")) run->link.codec.gains = 0;
    if (!has_width && !run->link.codec.gains && has_tables(run))
        run->link.codec.gate_width = rule->gate_width;
}

/* Only Muon's learning rates were measured. Where the basis is trained, so is what it is mixed
 * with. */
static void set_rates(strait_run *run, const strait_codec_rule *rule) {
    set_real(run, "train.encoder_basis_learning_rate", &run->train.encoder_basis_learning_rate, 0);
    if (run->train.encoder_basis_learning_rate == 0)
        set_real(run, "train.mixing_learning_rate", &run->train.mixing_learning_rate, 0);
    if (!is_muon(run)) return;
    set_real(run, "train.residual_out_learning_rate", &run->train.residual_out_learning_rate,
             rule->residual_out_learning_rate);
    set_real(run, "train.gate_learning_rate", &run->train.gate_learning_rate,
             rule->gate_learning_rate);
}

/* What no code has an effect on gets its default: the run is that of the other codec. */
static void set_stream(strait_run *run) {
    if (!strait_run_is_given(run, "link.codec.gains")) run->link.codec.gains = 0;
    set_real(run, "train.residual_out_learning_rate", &run->train.residual_out_learning_rate, 0);
    set_real(run, "train.boundary_learning_rate", &run->train.boundary_learning_rate, 0);
    set_real(run, "train.mixing_learning_rate", &run->train.mixing_learning_rate, -1);
}

/* Sets the learning rate that the others follow from, and returns the rule's settings for it. The
 * code moves by what residual outputs write times the encoder's gain, so that they learn faster
 * with a small one. */
static strait_codec_rule settings_of(strait_run *run, double share) {
    const int is_own = !is_muon(run) || strait_run_is_given(run, "train.learning_rate");
    const double gain = run->link.codec.encoder_gain;
    const strait_codec_rule rule = strait_codec_rule_at(
        run->model.width, fmin(share / (gain * gain), 1), is_own ? run->train.learning_rate : 0);
    run->train.learning_rate = rule.learning_rate;
    return rule;
}

/* Rule 1. */
static void set_fixed(strait_run *run) {
    if (!strait_run_is_given(run, "link.codec.gains")) run->link.codec.gains = 1;
    if (!is_muon(run)) return;
    set_real(run, "train.learning_rate", &run->train.learning_rate, 0.045);
    set_real(run, "train.residual_out_learning_rate", &run->train.residual_out_learning_rate,
             0.0045);
}

void strait_run_apply_rule(strait_run *run, int is_of_before) {
    const strait_options *table = strait_run_options();
    if (!strait_codec_has_rule(run->link.codec.name, run->link.codec.variant)) return;
    if (run->link.codec.rule == 0)
        run->link.codec.rule = is_of_before ? STRAIT_CODEC_RULE_FIXED : STRAIT_CODEC_RULE_NEW;
    run->is_given[strait_options_find(table, rule_key) - table->rows] = 1;
    if (run->link.codec.rule < STRAIT_CODEC_RULE_RATIO) {
        set_fixed(run);
        return;
    }
    const int is_stream = strait_run_rule_stream(run) != NULL;
    const double share = is_stream
                             ? 1
                             : strait_codec_rule_share(run->model.width, run->link.codec.keep,
                                                       ratio_of(run), (int)run->link.codec.bits);
    const strait_codec_rule rule = settings_of(run, share);
    if (is_stream) {
        set_stream(run);
        return;
    }
    set_gates(run, &rule);
    set_real(run, "link.codec.encoder_basis", &run->link.codec.encoder_basis, rule.basis_gain);
    set_rates(run, &rule);
}

const char *strait_run_rule_stream(const strait_run *run) {
    const double ratio = ratio_of(run);
    if (run->link.codec.rule < STRAIT_CODEC_RULE_RATIO || !(ratio > 0) ||
        !strait_codec_has_rule(run->link.codec.name, run->link.codec.variant) ||
        strait_run_is_given(run, "link.codec.variant"))
        return NULL;
    return strait_codec_rule_stream(ratio);
}

strait_err strait_run_check_rule(const strait_run *run) {
    static const char *const keys[] = {"link.codec.bits",       "link.codec.grad_bits",
                                       "link.codec.hidden",     "link.codec.anchors",
                                       "link.codec.context",    "link.codec.encoder",
                                       "link.codec.gains",      "link.codec.encoder_basis",
                                       "link.codec.gate_width", "link.codec.encoder_gain"};
    const char *stream = strait_run_rule_stream(run);
    for (size_t i = 0; stream != NULL && i < sizeof keys / sizeof *keys; i++)
        if (strait_run_is_given(run, keys[i]))
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "%s: codec %s at ratio %g sends the stream itself, as codec %s "
                               "does, and has no such setting; leave it out, or set "
                               "link.codec.variant to %s for a code",
                               keys[i], run->link.codec.name, ratio_of(run), stream,
                               run->link.codec.variant);
    return STRAIT_OK;
}

void strait_run_describe_rule(const strait_run *run, char *out, size_t capacity) {
    const char *stream = strait_run_rule_stream(run);
    out[0] = '\0';
    if (stream == NULL || run->stages.count < 2) return;
    (void)snprintf(
        out, capacity,
        "codec %s at ratio %g: the residual stream itself crosses, as codec %s sends it; "
        "nothing of a boundary is trained",
        run->link.codec.name, ratio_of(run), stream);
}
