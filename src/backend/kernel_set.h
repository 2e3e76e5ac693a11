/* kernel_set.h - storage for all kernels of one backend, which the files of that backend fill.
 *
 * Users of kernels see only struct strait_kernels. A backend keeps one set in its state, lets each
 * family of kernels write its entries, and then calls strait_kernel_set_link. */
#pragma once

#include "backend/kernels.h"

struct strait_kernel_set {
    struct strait_kernels base; // what users get; its optional pointers are set by link
    struct strait_conv_kernels conv;
    struct strait_topk_kernels topk;
    struct strait_log_scale_kernels log_scale;
    struct strait_hadamard_kernels hadamard;
    struct strait_lowrank_kernels lowrank;
    struct strait_subspace_kernels subspace;
    struct strait_token_gate_kernels token_gates;
    struct strait_autoencoder_kernels autoencoder;
    struct strait_fp8_kernels fp8;
    struct strait_group_kernels groups;
    struct strait_norm_conv_kernels norm_conv;
    struct strait_token_table_kernels token_tables;
    struct strait_conv_rotate_kernels conv_rotate;
};

/* Points set->base to every optional table of the set. The set must not move afterwards. */
static inline void strait_kernel_set_link(struct strait_kernel_set *set) {
    set->base.conv = &set->conv;
    set->base.topk = &set->topk;
    set->base.log_scale = &set->log_scale;
    set->base.hadamard = &set->hadamard;
    set->base.lowrank = &set->lowrank;
    set->base.subspace = &set->subspace;
    set->base.token_gates = &set->token_gates;
    set->base.autoencoder = &set->autoencoder;
    set->base.fp8 = set->fp8.matmul != NULL ? &set->fp8 : NULL; // older devices lack it
    set->base.groups = &set->groups;
    set->base.norm_conv = &set->norm_conv;
    set->base.token_tables = &set->token_tables;
    set->base.conv_rotate = &set->conv_rotate;
}
