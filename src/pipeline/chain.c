#include "pipeline/chain.h"

#include "base/alloc.h"
#include "codec/subspace.h"
#include "pipeline/snapshot.h"

#include <string.h>

struct link {
    struct strait_stage *stage;
    struct strait_generator *generator; // only when generating
    struct strait_codec *tail, *head;   // NULL at the ends
};

struct strait_chain {
    strait_recipe recipe;
    struct strait_backend *backend;
    struct link links[STRAIT_RUN_STAGES];
    struct strait_slab room;
    strait_tensor wire; // bytes between two stages
    int generates;
    int64_t crossing; // so many were made
};

static strait_err open_codec(struct strait_chain *c, int boundary, strait_half half,
                             struct strait_codec **out) {
    if (boundary < 0 || boundary >= c->recipe.n_stages - 1) return STRAIT_OK;
    const strait_codec_spec spec = strait_recipe_codec(&c->recipe, boundary, 1);
    return strait_codec_open(&spec, half, c->backend, out);
}

static strait_err open_link(struct strait_chain *c, int i, int64_t n_sequences) {
    struct link *link = &c->links[i];
    const strait_stage_spec spec = {.shape = c->recipe.shape,
                                    .part = c->recipe.parts[i],
                                    .n_sequences = c->generates ? 1 : n_sequences,
                                    .seq_len = c->generates ? 1 : c->recipe.shape.context,
                                    .n_slots = 1,
                                    .recomputes = 1,
                                    .logit_bytes = c->recipe.logit_bytes};
    STRAIT_TRY(strait_stage_open(&spec, c->backend, &link->stage));
    STRAIT_TRY(open_codec(c, i - 1, STRAIT_TAIL, &link->tail));
    STRAIT_TRY(open_codec(c, i, STRAIT_HEAD, &link->head));
    if (link->tail != NULL || link->head != NULL)
        STRAIT_TRY(strait_codec_join(link->tail, link->head));
    if (link->head != NULL && c->recipe.shape.subspace > 0)
        STRAIT_TRY(strait_stage_lend(link->stage, strait_subspace_basis(link->head),
                                     strait_subspace_fixed(link->head)));
    if (!c->generates) return STRAIT_OK;
    return strait_generator_open(link->stage, &link->generator);
}

static strait_err open_into(struct strait_chain *c, int64_t n_sequences) {
    c->recipe.codec.rows = c->generates ? 1 : n_sequences * c->recipe.shape.context;
    c->recipe.codec.seq_len = c->generates ? 1 : c->recipe.shape.context;
    c->recipe.codec.is_stepwise = c->generates;
    /* One row is of rank 1: a low-rank codec passes it whole. */
    if (c->generates && strcmp(c->recipe.codec.name, "lowrank") == 0)
        c->recipe.codec = (strait_codec_spec){.name = "none",
                                              .variant = "fp32",
                                              .rows = 1,
                                              .cols = c->recipe.shape.width,
                                              .precision = c->recipe.shape.precision,
                                              .n_boundaries = c->recipe.n_stages - 1,
                                              .n_slots = 1};
    if (c->recipe.n_stages > 1) {
        STRAIT_TRY(strait_codec_check(&c->recipe.codec));
        const size_t bytes = strait_codec_wire_bytes(&c->recipe.codec, STRAIT_FORWARD);
        STRAIT_TRY(strait_slab_add(&c->room, STRAIT_I8, 1, (int64_t)bytes, &c->wire));
        STRAIT_TRY(strait_slab_commit(&c->room, c->backend));
    }
    for (int i = 0; i < c->recipe.n_stages; i++)
        STRAIT_TRY(open_link(c, i, n_sequences));
    return STRAIT_OK;
}

strait_err strait_chain_open(const strait_recipe *recipe, struct strait_backend *backend,
                             int64_t n_sequences, struct strait_chain **out) {
    struct strait_chain *c = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *c, "chain of stages", (void **)&c));
    c->recipe = *recipe;
    c->backend = backend;
    c->generates = n_sequences == 0;
    const strait_err err = open_into(c, n_sequences);
    if (err != STRAIT_OK) {
        strait_chain_close(&c);
        return err;
    }
    *out = c;
    return STRAIT_OK;
}

void strait_chain_close(struct strait_chain **chain) {
    struct strait_chain *c = *chain;
    if (c == NULL) return;
    for (int i = 0; i < c->recipe.n_stages; i++) {
        struct link *link = &c->links[i];
        strait_codec_close(&link->tail);
        strait_codec_close(&link->head);
        strait_generator_close(&link->generator);
        strait_stage_close(&link->stage);
    }
    strait_slab_fini(&c->room);
    strait_alloc_free(c);
    *chain = NULL;
}

strait_err strait_chain_load(struct strait_chain *c, struct strait_checkpoint *checkpoint) {
    for (int i = 0; i < c->recipe.n_stages; i++) {
        struct link *link = &c->links[i];
        struct strait_stream *stream = strait_stage_stream(link->stage);
        STRAIT_TRY(strait_snapshot_read_stage(checkpoint, link->stage));
        if (link->tail != NULL)
            STRAIT_TRY(strait_snapshot_read_codec(checkpoint, link->tail, stream));
        if (link->head != NULL)
            STRAIT_TRY(strait_snapshot_read_codec(checkpoint, link->head, stream));
        STRAIT_TRY(strait_stage_refresh(link->stage));
    }
    return STRAIT_OK;
}

struct strait_stream *strait_chain_stream(struct strait_chain *chain) {
    return strait_stage_stream(chain->links[0].stage);
}

/* What stage i made goes into the input of stage i + 1, through both halves of their codec. */
static strait_err cross(struct strait_chain *c, int i, strait_tensor tokens, strait_tensor made,
                        strait_tensor input, strait_tensor next) {
    const strait_crossing at = {
        .stream = strait_stage_stream(c->links[i].stage),
        .step = 0,
        .microbatch = c->crossing++,
        .tokens = tokens,
        .input = input,
        .past = c->generates ? strait_generator_position(c->links[i].generator) - 1 : 0,
        .is_evaluation = 1};
    STRAIT_TRY(strait_codec_act_pack(c->links[i].head, &at, c->wire, made));
    STRAIT_TRY(c->backend->ops->wait(at.stream));
    return strait_codec_act_unpack(c->links[i + 1].tail, &at, next, c->wire);
}

strait_err strait_chain_score(struct strait_chain *c, strait_tensor tokens, strait_tensor targets,
                              strait_tensor *losses) {
    const int last = c->recipe.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_stage *stage = c->links[i].stage;
        strait_tensor made;
        STRAIT_TRY(strait_stage_forward(stage, 0, tokens));
        if (i == last) return strait_stage_loss(stage, targets, 0.0f, losses);
        STRAIT_TRY(strait_stage_output(stage, &made));
        STRAIT_TRY(cross(c, i, tokens, made, strait_stage_entered(stage, 0),
                         strait_stage_input(c->links[i + 1].stage, 0)));
    }
    return STRAIT_OK;
}

strait_err strait_chain_feed(struct strait_chain *c, int32_t token, const float **logits) {
    const int last = c->recipe.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_generator *g = c->links[i].generator;
        strait_tensor made;
        STRAIT_TRY(strait_generator_embed(g, token));
        STRAIT_TRY(strait_generator_run(g));
        if (i == last) return strait_generator_logits(g, logits);
        STRAIT_TRY(strait_generator_output(g, &made));
        STRAIT_TRY(cross(c, i, strait_generator_token(g), made, strait_generator_entered(g),
                         strait_generator_input(c->links[i + 1].generator)));
    }
    return STRAIT_OK;
}

void strait_chain_reset(struct strait_chain *chain) {
    for (int i = 0; i < chain->recipe.n_stages; i++)
        strait_generator_reset(chain->links[i].generator);
}

int64_t strait_chain_position(const struct strait_chain *chain) {
    return strait_generator_position(chain->links[0].generator);
}
