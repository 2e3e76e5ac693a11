#include "swarm/commitment.h"

#include "base/bytes.h"

/* Numbers are hashed as little-endian bytes of their bits, the squares as they are in memory on
 * every machine that is supported. */
strait_err strait_commitment_add_report(strait_digest *reports, int64_t step, double loss_sum,
                                        const float *squares, int n_squares) {
    unsigned char head[16];
    strait_writer w = {head, sizeof head, 0};
    strait_writer_uint(&w, (uint64_t)step, 8);
    strait_writer_real(&w, loss_sum);
    STRAIT_TRY(strait_digest_extend(reports, head, sizeof head));
    return strait_digest_extend(reports, squares, (size_t)n_squares * sizeof *squares);
}
