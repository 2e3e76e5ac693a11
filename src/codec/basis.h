/* basis.h - a basis that all stages share, and its updates.
 *
 * Every side of a codec with a basis holds the same orthonormal U [d x k] and its version. Every so
 * many steps the trainer updates it: the receiver of the last boundary proposes a new basis from
 * the gradients it has seen, every side of every stage adopts it, and each stage carries over the
 * tensors that are written in the old basis. This happens between steps, with no microbatch in
 * flight, on the thread of the stage. The calls allocate; they are rare.
 *
 * A codec provides all this in the `basis` entry of its table. */
#pragma once

#include "codec/codec.h"

typedef enum strait_codec_basis_kind {
    STRAIT_BASIS_WEIGHT,
    STRAIT_BASIS_MOMENT, // first moment or gradient: lies in the subspace as a whole, while the
                         // weights of an embedding also have a fixed part outside
    STRAIT_BASIS_SQUARE, // second moment: averages of squared gradients, one per weight or one per
                         // row or column of the weight
} strait_codec_basis_kind;

/* The entries of a codec; the functions below document them. All are mandatory. */
struct strait_codec_basis_ops {
    int64_t (*update_every)(const strait_codec_spec *spec);
    strait_tensor (*basis)(const struct strait_codec *c);
    strait_tensor (*fixed)(const struct strait_codec *c);
    strait_err (*propose)(struct strait_codec *receiver, struct strait_stream *s, float *out);
    strait_err (*adopt)(struct strait_codec *c, struct strait_stream *s, const float *basis,
                        uint32_t version);
    strait_err (*carry_over)(struct strait_codec *c, struct strait_stream *s, strait_role role,
                             strait_codec_basis_kind kind, strait_tensor t);
};

/* Whether the basis is updated once `step` steps are done; 0 for codecs without one. The spec is
 * checked. */
int strait_codec_basis_is_due(const strait_codec_spec *spec, int64_t step);

/* Whether the codec of a checked spec measures leaks and angles of a basis. */
int strait_codec_has_basis(const strait_codec_spec *spec);

/* What a model with requirements.subspace reads: the basis [d x k], and the fixed part of the
 * embedding [vocab x d], both on the device and owned by the codec. After join. STRAIT_EINVAL for
 * codecs without a basis, as for all functions below. */
strait_err strait_codec_basis_view(const struct strait_codec *c, strait_tensor *basis,
                                   strait_tensor *fixed);

/* Receiver of the last boundary: writes the proposed basis [d x k], orthonormal, to `out` on the
 * host, and forgets the gradients it was computed from. */
strait_err strait_codec_basis_propose(struct strait_codec *receiver, struct strait_stream *s,
                                      float *out);

/* Replaces the basis by `basis` [d x k] on the host. STRAIT_EPROTO unless `version` is higher than
 * the current one; STRAIT_EDATA if the columns are not orthonormal. */
strait_err strait_codec_basis_adopt(struct strait_codec *c, struct strait_stream *s,
                                    const float *basis, uint32_t version);

/* Whether parameters of this role are written in the basis, and must be carried over. */
int strait_codec_basis_has_role(strait_role role);

/* After adopt: carries a tensor of a parameter with such a role over to the new basis, in place.
 * After adopting the basis that it already had, nothing changes. Second moments are never reset:
 * Adam corrects them by the step of the run, and from zero its next updates would be up to
 * 1 / sqrt(1 - beta2) too long. */
strait_err strait_codec_basis_carry_over(struct strait_codec *c, struct strait_stream *s,
                                         strait_role role, strait_codec_basis_kind kind,
                                         strait_tensor t);
