/* subspace.h - what a trainer does with the shared basis of the subspace codec, beyond crossings.
 *
 * All halves of a run hold one basis U [d x k] and its version. Every spec.grassmann_every steps
 * the trainer asks the tail of the last boundary where to turn it, tells every half of every stage,
 * and carries over the tensors that are written in the old basis. Between steps, with no microbatch
 * in flight. These calls allocate; they are rare. */
#pragma once

#include "codec/codec.h"

/* The basis [d x k] on the device, to be read. */
strait_tensor strait_subspace_basis(const struct strait_codec *c);

/* T_fixed [vocab x d] on the device, to be read. After join. */
strait_tensor strait_subspace_fixed(const struct strait_codec *c);

/* Tail of the last boundary: a step of Riemannian descent on ||G - G U U'||^2 over the gradients G
 * it packed since the last turn, into out [d x k] on the host. Forgets the gradients. */
strait_err strait_subspace_update(struct strait_codec *tail, struct strait_stream *s, float *out);

/* Takes the basis of `version`, orthonormal [d x k] on the host. STRAIT_EPROTO unless `version`
 * follows the one before; STRAIT_EDATA if the columns are not orthonormal. */
strait_err strait_subspace_adopt(struct strait_codec *c, struct strait_stream *s,
                                 const float *basis, uint32_t version);

typedef enum strait_subspace_kind {
    STRAIT_SUBSPACE_WEIGHT,
    STRAIT_SUBSPACE_MOMENT, // or gradient: lies in the subspace whole, also for an embedding
} strait_subspace_kind;

/* After adopt: carries a tensor of a parameter with this role into the new basis, in place, which
 * projects it on the new subspace. Variant full: weights [d x inputs], embeddings [vocab x d];
 * otherwise coordinates: [k x inputs], [vocab x k]. Other roles are left alone. Second moments
 * belong to the old directions: set them to zero. */
strait_err strait_subspace_rotate(struct strait_codec *c, struct strait_stream *s, strait_role role,
                                  strait_subspace_kind kind, strait_tensor t);

/* Variant full: projects one tensor of a parameter with this role on the subspace, in place. What
 * after_update does to weights when it corrects a leak, a trainer does to first moments. */
strait_err strait_subspace_project(struct strait_codec *c, struct strait_stream *s,
                                   strait_role role, strait_subspace_kind kind, strait_tensor t);

/* How often a leak was corrected, since the first step of the run. */
int64_t strait_subspace_corrections(const struct strait_codec *c);
