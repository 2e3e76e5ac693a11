/* k_attention_once.cu - the gradient of attention of bf16 heads of 64 and 128 for sm_90a, scores
 * computed once.
 *
 * A block owns 128 keys, 64 for each of two groups of warps, and loops over tiles of queries, as
 * key_back in k_attention_back.cu. A third group copies the tiles. The groups write the gradient of
 * scores to shared memory, and its product with all 128 keys is the block's share of d_q: its sum
 * over blocks is in memory, in integers, whose sum has the same bits in any order. A query's
 * integers have the unit that a bound of its d_q allows:
 *
 *   |d_q| <= sum over keys of share |d_share - delta| max |k| <= 2 |d_y| max |v| max |k|
 *
 * where max is over the keys of the head in the sequence, |k| the largest value of a key and |v|
 * the length of a value. The last pass turns sums into bf16. */
#include "backend/cuda/attention_group.cuh"
#include "backend/cuda/attention_once.cuh"
#include "backend/cuda/attention_once_ptx.cuh"

// the host never launches them on other devices
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

constexpr int GROUPS = KEYS / GROUP; // of warps that compute
constexpr uint32_t OWN_TILE = GROUPS * GROUP_TILE;

/* Numbers of barriers: that of both groups, and the first of the groups' own. */
enum {
    MEET_BOTH = 1,
    MEET_GROUP = 2
};

/* What a block has in shared memory, by offset. A stage holds SUBS tiles of 64 queries, each with
 * d_y and columns. */
template <int PANELS> struct space {
    static constexpr int SUBS = 3 - PANELS;
    static constexpr uint32_t SUB = 2 * PANELS * GROUP_TILE + STRAIT_ATTENTION_COLUMNS;
    static constexpr uint32_t STAGE = SUBS * SUB;
    static constexpr uint32_t KEY = 0, VALUE = PANELS * OWN_TILE, STAGES = 2 * PANELS * OWN_TILE;
    static constexpr uint32_t D_SCORE = STAGES + 2 * STAGE; // twice SUBS x GROUPS tiles
    static constexpr uint32_t D_SCORES = SUBS * GROUPS * GROUP_TILE;
    static constexpr uint32_t SUM = D_SCORE + 2 * D_SCORES; // one tile of integers per group
    static constexpr uint32_t FULL = SUM + GROUPS * SUMS * 4, FREE = FULL + 16, END = FREE + 16;
    static_assert(END <= STRAIT_ATTENTION_ONCE_SHARED, "the host reserves enough");
};

/* The tiles of queries that a block meets: tile by tile for each query head of its group. */
struct met {
    int i;              // counts all of them
    int in_group, tile; // query head of the group; tile of that head
    int first, n;       // tiles of a head

    template <int QUERIES> __device__ __forceinline__ void init(int first_key, int seq_len) {
        i = in_group = 0;
        tile = first = first_key / QUERIES; // earlier queries see none of the keys
        n = (seq_len + QUERIES - 1) / QUERIES;
    }
    __device__ __forceinline__ void advance() {
        i++;
        if (++tile < n) return;
        tile = first;
        in_group++;
    }
};

/* Which keys a block owns. */
struct owned {
    head_rows rows; // of the first query head of the group
    int sequence, key_head, group, first_key;
};

template <int P> __device__ __forceinline__ owned own(const strait_attention_args &a) {
    const struct block_place place = place_of(a);
    owned o;
    o.sequence = place.pair / a.n_key;
    o.key_head = place.pair % a.n_key;
    o.group = a.n_query / a.n_key;
    o.first_key = place.turn * KEYS;
    o.rows = head_rows_of<P>(a, o.key_head * o.group, o.key_head, o.sequence);
    return o;
}

template <int PANELS, int N>
__device__ __forceinline__ void fetch_panels(uint32_t to, const uint16_t *from, int64_t pitch,
                                             int n_valid) {
    #pragma unroll
    for (int p = 0; p < PANELS; p++)
        fetch_rows<GROUP, N, 128>(to + tile_bytes<GROUP>(p * N), from + p * GROUP, pitch, n_valid);
}

/* One tile of queries: d_y and its columns come with it. */
template <int PANELS>
__device__ __forceinline__ void fetch_queries(const strait_attention_args &a, const owned &o,
                                              uint32_t to, int in_group, int first) {
    constexpr uint32_t TILE = PANELS * GROUP_TILE;
    const int column = in_group * PANELS * GROUP, n_valid = a.seq_len - first;
    const head_rows &p = o.rows;
    fetch_panels<PANELS, GROUP>(to, p.q + first * p.pitch + column, p.pitch, n_valid);
    fetch_panels<PANELS, GROUP>(to + TILE, p.d_y + first * p.y_pitch + column, p.y_pitch, n_valid);
    const int64_t at = (p.first_row + first) * a.n_query + o.key_head * o.group + in_group;
    fetch_column<GROUP>(to + 2 * TILE, a.power + at, a.n_query, n_valid);
    fetch_column<GROUP>(to + 2 * TILE + GROUP * 4, a.delta + at, a.n_query, n_valid);
    fetch_column<GROUP>(to + 2 * TILE + 2 * GROUP * 4, a.length + at, a.n_query, n_valid);
}

/* The group of warps that copies. */
template <int PANELS>
__device__ __forceinline__ void feed(const strait_attention_args &a, const owned &o, uint32_t base,
                                     met at) {
    using S = space<PANELS>;
    const head_rows &p = o.rows;
    const int n_own = a.seq_len - o.first_key, n = o.group * (at.n - at.first);
    fetch_panels<PANELS, KEYS>(base + S::KEY, p.k + o.first_key * p.pitch, p.pitch, n_own);
    fetch_panels<PANELS, KEYS>(base + S::VALUE, p.v + o.first_key * p.pitch, p.pitch, n_own);
    for (; at.i < n; at.advance()) {
        const uint32_t stage = (uint32_t)at.i & 1;
        if (at.i >= 2) phase_wait(base + S::FREE + stage * 8, ((uint32_t)at.i / 2 - 1) & 1);
    #pragma unroll
        for (int sub = 0; sub < S::SUBS; sub++)
            fetch_queries<PANELS>(a, o,
                                  base + S::STAGES + stage * S::STAGE + (uint32_t)sub * S::SUB,
                                  at.in_group, (at.tile * S::SUBS + sub) * GROUP);
        copy_wait();
        fence_shared();
        phase_arrive(base + S::FULL + stage * 8);
    }
}

/* The first of a warp's rows of the 64 of its group. */
__device__ __forceinline__ int warp_row() {
    return (int)threadIdx.x / 32 % 4 * 16;
}

/* Writes 64 rows of the gradient of scores to a tile, for products of its columns. */
__device__ __forceinline__ void store_rows(uint32_t tile, const group_rows &rows) {
    const int lane = lane_of(), row = warp_row() + lane / 8 % 2 * 8 + lane % 8;
    const uint32_t at = tile + piece_at<GROUP>(row, lane / 16);
    #pragma unroll
    for (int k = 0; k < GROUP / 16; k++)
        store_matrices(at ^ (uint32_t)(k << 5), rows.part[k]);
}

/* Scores and d_share of a tile of queries; rows are a group's keys. */
struct met_scores {
    float score[1][8][4], d_share[1][8][4];
};

/* What a group keeps while it computes. */
template <int PANELS> struct keeper {
    static constexpr int SUBS = space<PANELS>::SUBS;
    static constexpr uint32_t TILE = PANELS * GROUP_TILE;
    group_own<PANELS> key, val;
    float d_k[8 * PANELS][4], d_v[8 * PANELS][4];
    group_rows d_score[SUBS];
    float scale;
    int row; // of the lane's first key

    __device__ __forceinline__ void init(uint32_t base, int group, int own_first, float log_scale) {
        key.init(base + space<PANELS>::KEY, OWN_TILE, group * GROUP);
        val.init(base + space<PANELS>::VALUE, OWN_TILE, group * GROUP);
        scale = log_scale;
        row = own_first + warp_row() + lane_of() / 4;
    }
    /* Zeros, by products with any tile: where the loop begins, products of the stage before may
     * run, and the compiler lets no other instruction set what they add to. */
    __device__ __forceinline__ void clear(uint32_t tile) {
        d_score[SUBS - 1] = {};
        settle(d_score[SUBS - 1].part);
        fence_registers();
        start_sum<PANELS, false>(d_v, d_score[SUBS - 1], tile);
        fence_registers();
        start_sum<PANELS, false>(d_k, d_score[SUBS - 1], tile);
        group_wait_all();
    }
    /* Replaces scores by shares, and starts their product for d_v. */
    __device__ __forceinline__ void share(met_scores &of, uint32_t tile, int mask_query) {
        group_rows shares;
        if (mask_query >= 0) mask<1, 8, true>(of.score, row, mask_query);
        const uint32_t powers = tile + 2 * TILE + (uint32_t)(lane_of() % 4) * 8;
    #pragma unroll
        for (int n = 0; n < 8; n++) {
            const float2 power = shared_pair(powers + (uint32_t)n * 32);
    #pragma unroll
            for (int i = 0; i < 4; i++)
                of.score[0][n][i] = power_of_2(of.score[0][n][i] * scale -
                                               (i % 2 ? power.y : power.x));
        }
        round_rows(shares, of.score[0]);
        fence_registers();
        start_sum<PANELS>(d_v, shares, tile + TILE);
    }
    /* The gradient of scores, which is also stored. */
    __device__ __forceinline__ void differentiate(group_rows &out, met_scores &of, uint32_t tile,
                                                  uint32_t to) {
        const uint32_t deltas = tile + 2 * TILE + GROUP * 4 + (uint32_t)(lane_of() % 4) * 8;
    #pragma unroll
        for (int n = 0; n < 8; n++) {
            const float2 delta = shared_pair(deltas + (uint32_t)n * 32);
    #pragma unroll
            for (int i = 0; i < 4; i++)
                of.d_share[0][n][i] = of.score[0][n][i] *
                                      (of.d_share[0][n][i] - (i % 2 ? delta.y : delta.x));
        }
        round_rows(out, of.d_share[0]);
        store_rows(to, out);
    }
};

/* d_q = the product of the gradient of scores, whose rows are all keys of the block, and a panel of
 * the keys. */
__device__ __forceinline__ void start_queries(float d_q[8][4], uint32_t d_scores, uint32_t keys) {
    const uint32_t left = tile_word(d_scores), right = tile_word(keys);
    group_multiply_tiles<false, true>(d_q, tile_name(left), tile_name(right));
    #pragma unroll
    for (uint32_t k = 1; k < KEYS / 16; k++) // 16 rows of 128 bytes; tiles follow each other
        group_multiply_tiles<true, true>(d_q, tile_name(left + k * 128),
                                         tile_name(right + k * 128));
    group_commit();
}

/* By what a lane's two rows of d_q become integers; lengths of d_y are in shared memory. */
__device__ __forceinline__ void read_units(float per[2], uint32_t lengths, float bound) {
    const uint32_t at = lengths + (uint32_t)(warp_row() + lane_of() / 4) * 4;
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        unit u;
        u.init(shared_float(at + (uint32_t)half * 32) * bound);
        per[half] = u.per();
    }
}

/* Starts to add a group's share of d_q to the sums. */
__device__ __forceinline__ void add_queries(const float d_q[8][4], const float per[2],
                                            uint32_t space, int *sums, int group) {
    const uint32_t at = space + threadIdx.x % 128 * 16;
    #pragma unroll
    for (int n = 0; n < 8; n++) {
        int value[4];
    #pragma unroll
        for (int i = 0; i < 4; i++)
            value[i] = __float2int_rn(d_q[n][i] * per[i / 2]);
        store_ints(at + (uint32_t)n * 128 * 16, value);
    }
    fence_shared();
    meet_some<128>(MEET_GROUP + group);
    if (threadIdx.x % 128 == 0) add_ints(sums, space, SUMS * 4);
}

/* The warp no longer needs a stage. */
__device__ __forceinline__ void leave(uint32_t phase) {
    __syncwarp();
    if (lane_of() == 0) phase_arrive(phase);
}

/* Products of one tile or two: what a stage adds to d_k and d_v, but for the last product, and the
 * gradient of its scores. Products of a tile run while shares of the one before are computed: waits
 * leave those that were started after what is needed. With one tile that is d_share, then the sum
 * for d_v; with two also the second's scores, then the first's sum for d_k and the second's
 * d_share.
 */
template <int PANELS>
__device__ __forceinline__ void meet_stage(keeper<PANELS> &own, const met &at, uint32_t before,
                                           uint32_t stage, uint32_t d_scores, int own_first,
                                           int group) {
    using S = space<PANELS>;
    met_scores of[S::SUBS];
    fence_registers();
    own.key.start(of[0].score[0], stage);
    own.val.start(of[0].d_share[0], stage + own.TILE);
    if (S::SUBS == 2) own.key.start(of[1].score[0], stage + S::SUB);
    #pragma unroll
    for (int sub = 0; sub < S::SUBS; sub++) {
        const int first = (at.tile * S::SUBS + sub) * GROUP;
        const uint32_t tile = stage + (uint32_t)sub * S::SUB;
        if (sub == 1)
            group_wait<3>(of[1].score[0]);
        else
            group_wait<S::SUBS>(of[0].score[0]);
        if (sub == 0) {
            settle(own.d_score[S::SUBS - 1].part); // the stage before ended only now
            if (at.i > 0) leave(before);
        }
        own.share(of[sub], tile, first <= own_first ? first + lane_of() % 4 * 2 : -1);
        if (sub == 1)
            group_wait<1>(of[1].d_share[0]);
        else
            group_wait<S::SUBS>(of[0].d_share[0]);
        own.differentiate(own.d_score[sub], of[sub], tile,
                          d_scores + (uint32_t)(sub * GROUPS + group) * GROUP_TILE);
        if (sub + 1 < S::SUBS) {
            fence_registers();
            start_sum<PANELS>(own.d_k, own.d_score[sub], tile);
            own.val.start(of[1].d_share[0], stage + S::SUB + own.TILE);
        }
    }
}

/* A group of warps that computes. */
template <int PANELS>
__device__ __forceinline__ void compute(const strait_attention_args &a, const owned &o,
                                        uint32_t base, met at) {
    using S = space<PANELS>;
    constexpr int P = PANELS * GROUP;
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
    const int own_first = o.first_key + group * GROUP, n = o.group * (at.n - at.first);
    // d_q: with one panel, a group takes one of two tiles of queries, with two one of the panels
    const int sub_of_q = PANELS == 1 ? group : 0, panel_of_q = PANELS == 1 ? 0 : group;
    const float bound = bound_of(a, o.sequence, o.key_head);
    keeper<PANELS> own;
    own.init(base, group, own_first, a.scale * LOG2_E);
    phase_wait(base + S::FULL, 0);
    own.clear(base + S::KEY);
    for (; at.i < n; at.advance()) {
        const uint32_t turn = (uint32_t)at.i & 1, stage = base + S::STAGES + turn * S::STAGE;
        const uint32_t d_scores = base + S::D_SCORE + turn * S::D_SCORES;
        phase_wait(base + S::FULL + turn * 8, (uint32_t)at.i / 2 & 1);
        meet_stage<PANELS>(own, at, base + S::FREE + (turn ^ 1) * 8, stage, d_scores, own_first,
                           group);
        fence_shared();
        if (threadIdx.x % 128 == 0) adds_read();
        meet_some<GROUPS * 128>(MEET_BOTH);
        float d_q[8][4], per[2];
        fence_registers();
        start_queries(d_q, d_scores + (uint32_t)sub_of_q * GROUPS * GROUP_TILE,
                      base + S::KEY + (uint32_t)panel_of_q * OWN_TILE);
        start_sum<PANELS>(own.d_k, own.d_score[S::SUBS - 1], stage + (S::SUBS - 1) * S::SUB);
        group_wait<1>(d_q);
        if (S::SUBS > 1) settle(own.d_score[0].part);
        read_units(per,
                   stage + (uint32_t)sub_of_q * S::SUB + 2 * PANELS * GROUP_TILE + 2 * GROUP * 4,
                   bound);
        int *sums = sums_of<PANELS>(a, o.sequence, o.key_head * o.group + at.in_group,
                                    at.tile * S::SUBS + sub_of_q);
        add_queries(d_q, per, base + S::SUM + (uint32_t)group * SUMS * 4, sums + panel_of_q * SUMS,
                    group);
    }
    group_wait<0, PANELS>(own.d_k);
    group_wait<0, PANELS>(own.d_v);
    #pragma unroll
    for (int half = 0; half < 2; half++)
        write_keys<P>(a, o.rows, o.key_head, own.row + 8 * half, own.d_k, own.d_v, half);
    if (threadIdx.x % 128 == 0) adds_wait();
}

/* d_k, d_v and the sums of d_q. Blocks: x = key head + n_key * sequence, y = tile of keys. */
template <int PANELS> __device__ __forceinline__ void back(const strait_attention_args &a) {
    using S = space<PANELS>;
    const uint32_t base = shared_base();
    const owned o = own<PANELS * GROUP>(a);
    met at;
    at.init<GROUP * S::SUBS>(o.first_key, a.seq_len);
    if (threadIdx.x < 2) {
        phase_init(base + S::FULL + threadIdx.x * 8, 128);
        phase_init(base + S::FREE + threadIdx.x * 8, GROUPS * 4);
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<24>();
        feed<PANELS>(a, o, base, at);
    } else {
        take_registers<240>();
        compute<PANELS>(a, o, base, at);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(STRAIT_ATTENTION_ONCE_THREADS, 1)
    attention_once_64(const __grid_constant__ struct strait_attention_args a) {
    back<1>(a);
}

extern "C" __global__ void __launch_bounds__(STRAIT_ATTENTION_ONCE_THREADS, 1)
    attention_once_128(const __grid_constant__ struct strait_attention_args a) {
    back<2>(a);
}

#endif
