#include "codec/basis.h"

/* Commands come from the coordinator: one that asks a codec without a basis to update it is an
 * error of the peer, not a reason to crash. */
static strait_err find(const struct strait_codec *c, const struct strait_codec_basis_ops **out) {
    *out = c->ops->basis;
    if (*out != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: codec %s has no basis to update",
                       c->spec.boundary, c->spec.name);
}

/* Asked before any codec is open, so it goes by the spec alone. An interval of 0 turns updates off.
 */
int strait_codec_basis_is_due(const strait_codec_spec *spec, int64_t step) {
    const struct strait_codec_ops *ops = strait_codec_find(spec->name, spec->variant);
    if (ops == NULL || ops->basis == NULL) return 0;
    const int64_t every = ops->basis->update_every(spec);
    return every > 0 && step % every == 0;
}

/* A codec that only carries what the model computed has a basis, but neither leaks nor angles. */
int strait_codec_has_basis(const strait_codec_spec *spec) {
    const struct strait_codec_ops *ops = strait_codec_find(spec->name, spec->variant);
    return ops != NULL && ops->basis != NULL && !(strait_codec_traits(spec) & STRAIT_CODEC_CODE);
}

strait_err strait_codec_basis_view(const struct strait_codec *c, strait_tensor *basis,
                                   strait_tensor *fixed) {
    const struct strait_codec_basis_ops *ops;
    STRAIT_TRY(find(c, &ops));
    *basis = ops->basis(c);
    *fixed = ops->fixed(c);
    return STRAIT_OK;
}

strait_err strait_codec_basis_propose(struct strait_codec *receiver, struct strait_stream *s,
                                      float *out) {
    const struct strait_codec_basis_ops *ops;
    STRAIT_TRY(find(receiver, &ops));
    return ops->propose(receiver, s, out);
}

strait_err strait_codec_basis_adopt(struct strait_codec *c, struct strait_stream *s,
                                    const float *basis, uint32_t version) {
    const struct strait_codec_basis_ops *ops;
    STRAIT_TRY(find(c, &ops));
    return ops->adopt(c, s, basis, version);
}

/* Only weights that write into the residual stream are stored in coordinates of the basis. */
int strait_codec_basis_has_role(strait_role role) {
    return role == STRAIT_ROLE_RESIDUAL_OUT || role == STRAIT_ROLE_EMBEDDING;
}

strait_err strait_codec_basis_carry_over(struct strait_codec *c, struct strait_stream *s,
                                         strait_role role, strait_codec_basis_kind kind,
                                         strait_tensor t) {
    const struct strait_codec_basis_ops *ops;
    STRAIT_TRY(find(c, &ops));
    return strait_codec_basis_has_role(role) ? ops->carry_over(c, s, role, kind, t) : STRAIT_OK;
}
