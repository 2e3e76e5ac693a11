/* k_attention.cu - causal attention of bf16 heads of 64 and 128 on tensor cores.
 *
 * A block owns a tile of queries of one head and loops over tiles of keys, from the first to the
 * one on the diagonal; the next tile is copied while one is processed. The softmax is online: per
 * row the largest score so far, the sum of exponentials, and the weighted mean, both relative to
 * that score. Tiles come in order, so the bits are the same every time. */
#include "backend/cuda/attention_softmax.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800 // the host never launches them on older devices
namespace {

constexpr int KEYS = 64; // per tile

/* Blocks: x = head + n_query * sequence, y = tile of queries; the last tiles, which see the most
 * keys, run first. */
template <int P, int MT, bool IS_HELD, int STEP>
__device__ __forceinline__ void forward(const struct strait_attention_args &a) {
    constexpr int ROWS = 16 * MT * WARPS,
                  NT = STEP / 8; // STEP keys at a time: their scores are in registers
    const int head = (int)(blockIdx.x % (unsigned)a.n_query);
    const int first_query = ((int)gridDim.y - 1 - (int)blockIdx.y) * ROWS;
    const int64_t first_row = (int64_t)(blockIdx.x / (unsigned)a.n_query) * a.seq_len;
    const int64_t pitch = (int64_t)(a.n_query + 2 * a.n_key) * P;
    const uint16_t *sequence = (const uint16_t *)a.qkv + first_row * pitch;
    const uint16_t *keys = sequence + (a.n_query + head / (a.n_query / a.n_key)) * P;
    const int to_values = a.n_key * P;
    const uint32_t queries = shared_base(), stages = queries + tile_bytes<P>(ROWS);
    const int warp_row = (int)threadIdx.x / 32 * 16 * MT;
    const int row = first_query + warp_row + lane_of() / 4;

    fetch_rows<P, ROWS>(queries, sequence + first_query * pitch + (int64_t)head * P, pitch,
                        a.seq_len - first_query);
    fetch_rows<P, KEYS>(stages, keys, pitch, a.seq_len);
    fetch_rows<P, KEYS>(stages + tile_bytes<P>(KEYS), keys + to_values, pitch, a.seq_len);

    running<P, MT> r;
    start(r);
    own_rows<P, MT, IS_HELD> own;
    own.init(queries, warp_row);
    const int end = min(first_query + ROWS, a.seq_len);
    for (int first = 0, stage = 0; first < end; first += KEYS, stage ^= 1) {
        copy_wait();
        __syncthreads();
        if (first == 0) own.hold();
        if (first + KEYS < end) {
            const uint32_t next = stages + (uint32_t)(stage ^ 1) * 2 * tile_bytes<P>(KEYS);
            keys += KEYS * pitch;
            fetch_rows<P, KEYS>(next, keys, pitch, a.seq_len - first - KEYS);
            fetch_rows<P, KEYS>(next + tile_bytes<P>(KEYS), keys + to_values, pitch,
                                a.seq_len - first - KEYS);
        }
        const uint32_t key_tile = stages + (uint32_t)stage * 2 * tile_bytes<P>(KEYS);
    #pragma unroll 1
        for (int step = 0; step < KEYS; step += STEP) {
            const int key = first + step;
            if (key > first_query + warp_row + 16 * MT - 1) break; // later keys are all masked
            float score[MT][NT][4];
            product_with_rows<P, MT, NT, IS_HELD>(score, own, key_tile, step);
            if (key + STEP - 1 > first_query + warp_row)
                mask<MT, NT, false>(score, row, key + lane_of() % 4 * 2);
    #pragma unroll
            for (int m = 0; m < MT; m++)
    #pragma unroll
                for (int half = 0; half < 2; half++)
                    softmax_row<P, NT>(score[m], r.mean[m], r.max[m][half], r.sum[m][half], half,
                                       a.scale * LOG2_E);
            add_product<P, MT, NT>(r.mean, score, key_tile + tile_bytes<P>(KEYS), step);
        }
    }
    finish<P, MT>(a, r, first_row, head, row);
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_64(const __grid_constant__ struct strait_attention_args a) {
    forward<64, 2, true, 64>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_128(const __grid_constant__ struct strait_attention_args a) {
    forward<128, 2, false, 32>(a);
}

#endif
