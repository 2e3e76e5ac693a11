/* bottleneck.h - the encoder and decoder of the blocks beside a boundary (codec resbm, variant b;
 * docs/codecs.md). In a shape with a bottleneck of k, what crosses a boundary is a code z of k
 * values per token, which the blocks on both sides compute and read themselves:
 *
 *   last block of a stage    mid: the stream after attention, o: the mlp's output
 *                            encode: z = mid[:k] + silu(o) enc^T
 *   first block of the next  decode: u = relu(z dec^T); attention reads u and adds to pad(z)
 *
 * so that the first k channels of the residual stream pass through every boundary unchanged. A
 * block has the encoder, the decoder, both or neither; each has its own set of functions. */
#pragma once

#include "model/parts/part.h"

/* Which of the two a block, or a range of blocks, has. */
typedef struct strait_bottleneck_ends {
    int decodes_input, encodes_output;
} strait_bottleneck_ends;

typedef struct strait_bottleneck {
    strait_param *dec;  // [D x k]; NULL unless the block decodes its input
    strait_param *enc;  // [k x D]; NULL unless the block encodes its output
    int drops_identity; // no identity path: only what is encoded crosses
} strait_bottleneck;

typedef struct strait_bottleneck_acts {
    strait_tensor code;    // [N x k], z received; kept like a block's input
    strait_tensor mlp_out; // [N x D], o
    /* For deferred weight gradients: the gradients of the code sent and of z dec^T. */
    strait_tensor d_code, d_u; // [N x k], [N x D]
} strait_bottleneck_acts;

strait_err strait_bottleneck_add_decoder(struct strait_param_list *list, strait_bottleneck *out);
strait_err strait_bottleneck_add_encoder(struct strait_param_list *list, strait_bottleneck *out);

/* Plans d_code and d_u. The block plans `code` and `mlp_out`, which live as long as its own. */
strait_err strait_bottleneck_plan_deferred(const strait_shape *shape, int64_t n_tokens,
                                           const strait_bottleneck_ends *ends,
                                           struct strait_slab *slab, strait_bottleneck_acts *out);

/* Decoder: computes u, and the stream pad(z), from acts->code. */
strait_err strait_bottleneck_decode(const strait_work *work, const strait_bottleneck *part,
                                    const strait_bottleneck_acts *acts, strait_tensor u,
                                    strait_tensor stream);
/* From the gradients of the stream and of u, which is overwritten, to that of the code. */
strait_err strait_bottleneck_decode_backward(const strait_work *work, const strait_bottleneck *part,
                                             strait_tensor d_code, strait_tensor d_stream,
                                             strait_tensor d_u, strait_tensor u);
/* The gradient of dec, from what decode_backward left in d_u. */
strait_err strait_bottleneck_decode_weight_grads(const strait_work *work,
                                                 const strait_bottleneck *part,
                                                 const strait_bottleneck_acts *acts,
                                                 strait_tensor d_u);

/* Encoder: computes the code from mid and acts->mlp_out; `scratch` [N x D], also below. */
strait_err strait_bottleneck_encode(const strait_work *work, const strait_bottleneck *part,
                                    const strait_bottleneck_acts *acts, strait_tensor code,
                                    strait_tensor mid, strait_tensor scratch);
/* From the gradient of the code to those of mid and of the mlp's output. */
strait_err strait_bottleneck_encode_backward(const strait_work *work, const strait_bottleneck *part,
                                             const strait_bottleneck_acts *acts,
                                             strait_tensor d_mid, strait_tensor d_mlp_out,
                                             strait_tensor d_code);
/* The gradient of enc, from that of the code. */
strait_err strait_bottleneck_encode_weight_grads(const strait_work *work,
                                                 const strait_bottleneck *part,
                                                 const strait_bottleneck_acts *acts,
                                                 strait_tensor d_code, strait_tensor scratch);
