/* subspace.h - what the files of the subspace codec share: its state, and the operations on weights
 * and basis.
 *
 * subspace.c has the table and the crossings, subspace_project.c keeps weights in the subspace,
 * subspace_update.c moves the subspace towards the gradients. The first calls the other two. */
#pragma once

#include "codec/basis.h"
#include "codec/builder.h"

/* The states that checkpoints keep, in this order. */
enum {
    SUBSPACE_BASIS,    // U [d x k]
    SUBSPACE_COUNTERS, // i32 [1 x COUNTER_ENTRIES]; "book" in checkpoints
    SUBSPACE_GRAM      // receiver of the last boundary: sum of G^T G U [d x k]
};
enum {
    COUNTER_VERSION,     // of the basis
    COUNTER_LEAKS,       // 1: the last measured leak was over the limit
    COUNTER_UPDATES,     // calls of after_update
    COUNTER_CORRECTIONS, // how many of them corrected a leak
    COUNTER_ENTRIES
};

struct strait_subspace {
    int32_t counters[COUNTER_ENTRIES]; // the valid copy; the state on the device follows it
    int has_gram;                      // whether this side collects gradients for basis updates
    int is_same_basis;                 // the last basis adopted was the one already held
    double angle, mean_angle;          // of the last update since open
    double error;                      // of U, as in strait_codec_basis_metrics
    strait_tensor fixed;  // T_fixed [vocab x d]; a sender on a middle stage borrows its receiver's
    strait_tensor wide;   // [N x d], of the stream's type where padded
    strait_tensor code;   // [N x k]
    strait_tensor narrow; // [k x widest]
    strait_tensor rotation; // R = U^T U_new [k x k]
    strait_tensor squares;  // the squares of the entries of R
    /* Padded: K is k padded, T the type of the stream. */
    strait_tensor crossing;   // [N x K] f32: what is packed
    strait_tensor rounded;    // [N x K] T: crossing in the stream's type
    strait_tensor half_basis; // [d x K] T: a copy of the basis
    strait_tensor half_gram;  // [d x K] f32: product before it is added to SUBSPACE_GRAM
};

/* Variant full: projects a tensor of a parameter with this role on the subspace, in place: a
 * residual output projection [d x inputs], or an embedding [vocab x d], whose weights keep their
 * fixed part. Other roles are left alone. */
strait_err strait_subspace_project(struct strait_codec *c, struct strait_stream *s,
                                   strait_role role, strait_codec_basis_kind kind, strait_tensor t);

/* Entries of the basis table; see codec/basis.h. Variant full projects the tensor on the new
 * subspace; the others hold coordinates, [k x inputs] or [vocab x k], and rotate them. */
strait_err strait_subspace_carry_over(struct strait_codec *c, struct strait_stream *s,
                                      strait_role role, strait_codec_basis_kind kind,
                                      strait_tensor t);
strait_err strait_subspace_propose(struct strait_codec *receiver, struct strait_stream *s,
                                   float *out);
strait_err strait_subspace_adopt(struct strait_codec *c, struct strait_stream *s,
                                 const float *basis, uint32_t version);

/* Reads U and measures how far it is from orthonormal. Allocates: for open and restored. */
strait_err strait_subspace_measure_basis(struct strait_codec *c, struct strait_stream *s);

/* The largest leak that is tolerated: leak_limit of the spec, or what the rounding of the stream's
 * type explains. */
double strait_subspace_leak_limit(const strait_codec_spec *spec);

/* Writes the counters to the device, so that checkpoints see them. */
strait_err strait_subspace_write_counters(struct strait_codec *c, struct strait_stream *s);
