// Linear layers of a step of few tokens: the weights stream through once, what follows is fused.
//
//     D[f, t] = sum_k W[f, k] X[t, k]        W [N, K] and X [T, K] in BF16, D in fp32
//
// The operands are swapped: 64 output features are the 64 rows of a wgmma, the step's tokens its
// columns, so that no tensor work goes to waste below 64 tokens' multiples and each weight byte is
// read by one block only. A block takes FT features and, in a cluster of SPLIT blocks, its share of
// K; the shares are added through distributed shared memory in a fixed order, each block for its
// share of the tokens, and the epilogue runs there:
//
//   QKV       RMSNorm of the token, norm of q and k per head, rotary    (FT = head dim = 128)
//   SWIGLU    RMSNorm of the token, silu(gate) up                       (FT = 64 gate and 64 up)
//   RESIDUAL  add to the residual stream
//   PROJECT   LayerNorm of the token, bias
//   GELU      LayerNorm of the token, bias, exact GELU
//   POSTNORM  add, with the bias, to the LayerNorm of the residual stream
//
// Norms are deferred: X holds the stream x already times the norm's weight w, and the rest of the
// norm is linear in the product. With r = 1 / rms, or mean m and r = 1 / standard deviation,
//
//     W RMSNorm(x)         = r W (w x)
//     W LayerNorm(x) + b   = r (W (w x) - m W w) + (W b_norm + b)
//
// The two ends of the bracket and b_norm's part are made once, at load. Who writes the stream writes
// x w and, for 64 features each, sum and sum of squares of x, too.
//
// With programmatic dependent launch the first stages of weights are on their way before the kernel
// waits for the one before it. To move the weights of the layer behind this one into the L2 cache
// meanwhile gained nothing (bench/small_steps.py, 2026-12-01: 0.44 to 0.46 ms instead of 0.44).
//
// Defined by the launcher (small_gemm.py): TOK tokens a block, FT, SPLIT, STAGES, EPILOGUE, PARTS of
// a token's sums, and the wgmma of TOK columns.

#include "hopper.cuh"

#define QKV 0
#define SWIGLU 1
#define RESIDUAL 2
#define PROJECT 3
#define GELU 4
#define POSTNORM 5

#define ADDS (EPILOGUE == RESIDUAL || EPILOGUE == POSTNORM)
#define LAYER_NORM (EPILOGUE >= PROJECT)
#define NORMS (EPILOGUE != RESIDUAL)  // needs the stream's sums

#define WARPGROUPS (FT / 64)
#define WARPS (4 * WARPGROUPS)
#define THREADS (128 * WARPGROUPS + 32)
#define TILE_BYTES 8192  // 64 rows of 64 BF16
#define W_BYTES (WARPGROUPS * TILE_BYTES)
#define X_BYTES (TOK * 128)
#define STAGE_BYTES (W_BYTES + X_BYTES)
#define OWN_TOKENS (TOK / SPLIT)
// The epilogue: FT / 4 lanes a token, all warps' tokens in rounds.
#define TOKEN_LANES (FT / 4)
#define TOKENS_A_ROUND (WARPS * 32 / TOKEN_LANES)
#define ROUNDS ((OWN_TOKENS + TOKENS_A_ROUND - 1) / TOKENS_A_ROUND)
// Rows of the exchange buffer: 4 floats more than features, so that a warp's stores of a wgmma
// fragment (8 features of 4 pairs of tokens) hit 32 banks.
#define ROW (FT + 4)

struct Args {
  u64 out;          // BF16 [T, row_stride]; ADDS: the residual stream, read too
  u64 scaled;       // ADDS: BF16 [T, N], the stream times the next norm's weight
  u64 sums_in;      // (sum, sum of squares) in fp32 [T, PARTS, 2], of the residual stream
  u64 sums_out;     // ADDS: the same, N / 64 parts; not the memory of sums_in
  u64 next_weight;  // ADDS: BF16 [N], of the next norm
  u64 norm_weight;  // POSTNORM: BF16 [N], of the norm of the stream as it is, and so is norm_bias
  u64 norm_bias;
  u64 bias;       // POSTNORM: BF16 [N]
  u64 mean_part;  // PROJECT, GELU: fp32 [N], W w
  u64 shift;      // PROJECT, GELU: fp32 [N], W b_norm + b
  u64 q_weight;   // QKV: BF16 [head dim], and so is k_weight
  u64 k_weight;
  u64 cos;  // QKV: fp32 [positions, head dim / 2], and so is sin
  u64 sin;
  u64 positions;        // QKV: int32 [T]
  float eps;            // of the norm of the token
  float head_eps;       // of q's and k's norm
  float inverse_width;  // 1 / width of the residual stream
  int k_steps;          // of 64, a block
  int row_stride;       // of out, in elements
  int second_row;       // SWIGLU: first row of up in W
  int num_heads;        // QKV: of q
  int num_rotated;      // QKV: of q and k
};

__device__ __forceinline__ void load_weights(u32 to, const TensorMap* map, int k,
                                             const int (&rows)[2], u32 barrier) {
  for (int half = 0; half < WARPGROUPS; ++half)
    load_tile(to + half * TILE_BYTES, map, k, rows[half], barrier);
}

__device__ __forceinline__ void cluster_arrive() {
#if SPLIT > 1
  barrier_cluster_arrive();
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if SPLIT > 1
  barrier_cluster_wait();
#endif
}

__device__ __forceinline__ void unpack4(uint2 pairs, float (&values)[4]) {
  const float2 low = unpack(pairs.x), high = unpack(pairs.y);
  values[0] = low.x, values[1] = low.y, values[2] = high.x, values[3] = high.y;
}

// Over the lanes of one token.
__device__ __forceinline__ float token_sum(float value) {
#pragma unroll
  for (int step = TOKEN_LANES / 2; step; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  return value;
}

// The i-th token of the lanes whose first is `first` of this block's.
__device__ __forceinline__ int own_token(int rank, int first, int i) {
  return rank * OWN_TOKENS + first + i * TOKENS_A_ROUND;
}

__device__ __forceinline__ bool has_token(int first, int i) {
  return OWN_TOKENS % TOKENS_A_ROUND == 0 || first + i * TOKENS_A_ROUND < OWN_TOKENS;
}

// Four neighbouring features of each of a warp's tokens, summed over the cluster: a lane has 4 of FT,
// so that FT / 4 lanes make a token. A block begins with its own part and goes on with its
// neighbour's, so that no multiprocessor is asked by all others at once; the order, and with it the
// rounding, depends on the token alone.
__device__ __forceinline__ void gather(float (&sum)[ROUNDS][4], u32 base, int rank, int first) {
  float part[SPLIT][ROUNDS][4];
#pragma unroll
  for (int source = 0; source < SPLIT; ++source) {
    u32 from = base;
#if SPLIT > 1
    from = peer_address(base, (rank + source) % SPLIT);
#endif
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      if (!has_token(first, i)) break;
      const u32 at = from + 4 * (own_token(rank, first, i) * ROW + 4 * (threadIdx.x % TOKEN_LANES));
      float(&to)[4] = part[source][i];
#if SPLIT > 1
      load_of_peer(at, to);
#else
      load_shared(at, to);
#endif
    }
  }
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum[i][j] = part[0][i][j];
#pragma unroll
      for (int source = 1; source < SPLIT; ++source) sum[i][j] += part[source][i][j];
    }
}

// What a thread's epilogue reads of global memory; fetched before the products, not after them.
struct Fetched {
#if NORMS
  float scale[ROUNDS];  // r of the token
#endif
#if LAYER_NORM
  float mean[ROUNDS];
#endif
#if EPILOGUE == QKV
  float head_weight[4];
  float4 cos[ROUNDS], sin[ROUNDS];
#elif EPILOGUE == PROJECT || EPILOGUE == GELU
  float mean_part[4], shift[4];
#elif ADDS
  float next_weight[4];
  uint2 stream[ROUNDS];
#endif
#if EPILOGUE == POSTNORM
  float norm_weight[4], shift[4];
#endif
};

__device__ __forceinline__ long stream_index(const Args& args, int token, int tile) {
  return ((long)token * args.row_stride + tile * FT) / 4 + threadIdx.x % TOKEN_LANES;
}

// Weights of the model and inputs of the step: there before the kernel in front has ended.
__device__ __forceinline__ void fetch_constants(const Args& args, Fetched& fetched, int tile,
                                                int rank, int first, int first_token) {
  const int lane = threadIdx.x % TOKEN_LANES;
#if EPILOGUE == QKV
  const u64 weight = tile < args.num_heads ? args.q_weight : args.k_weight;
  unpack4(((const uint2*)weight)[lane], fetched.head_weight);
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) {
    if (!has_token(first, i)) break;
    const long position = ((const int*)args.positions)[first_token + own_token(rank, first, i)];
    fetched.cos[i] = ((const float4*)args.cos)[position * 16 + lane % 16];
    fetched.sin[i] = ((const float4*)args.sin)[position * 16 + lane % 16];
  }
#elif EPILOGUE == PROJECT || EPILOGUE == GELU
  const int column = tile * FT / 4 + lane;
  *(float4*)fetched.mean_part = ((const float4*)args.mean_part)[column];
  *(float4*)fetched.shift = ((const float4*)args.shift)[column];
#elif ADDS
  const int column = tile * FT / 4 + lane;
  unpack4(((const uint2*)args.next_weight)[column], fetched.next_weight);
#if EPILOGUE == POSTNORM
  float bias[4];
  unpack4(((const uint2*)args.bias)[column], bias);
  unpack4(((const uint2*)args.norm_bias)[column], fetched.shift);
  unpack4(((const uint2*)args.norm_weight)[column], fetched.norm_weight);
#pragma unroll
  for (int j = 0; j < 4; ++j) fetched.shift[j] += bias[j];
#endif
#endif
}

// What the kernels in front wrote.
__device__ __forceinline__ void fetch_written(const Args& args, Fetched& fetched, int tile,
                                              int rank, int first, int first_token) {
#if NORMS
  float2 sums[ROUNDS];
#endif
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) {
    if (!has_token(first, i)) break;
    const int token = first_token + own_token(rank, first, i);
#if ADDS
    fetched.stream[i] = ((const uint2*)args.out)[stream_index(args, token, tile)];
#endif
#if NORMS
    const float2* parts = (const float2*)args.sums_in + (long)token * PARTS;
    sums[i] = make_float2(0.f, 0.f);
#pragma unroll
    for (int step = 0; step < PARTS; step += TOKEN_LANES) {
      const int part = step + threadIdx.x % TOKEN_LANES;
      if (part < PARTS) sums[i].x += parts[part].x, sums[i].y += parts[part].y;
    }
#endif
  }
#if NORMS
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) {
    float variance = token_sum(sums[i].y) * args.inverse_width;
#if LAYER_NORM
    fetched.mean[i] = token_sum(sums[i].x) * args.inverse_width;
    // Rounding may take a variance near 0 below it; fmaxf would hide a NaN.
    variance -= fetched.mean[i] * fetched.mean[i];
    if (variance < 0.f) variance = 0.f;
#endif
    fetched.scale[i] = rsqrtf(variance + args.eps);
  }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    small_gemm(const __grid_constant__ TensorMap w_map, const __grid_constant__ TensorMap x_map,
               const __grid_constant__ Args args) {
  extern __shared__ unsigned char memory[];
  SHARED_ARRAY(u64, barriers, 2 * STAGES);
  const u32 base = (shared_address(memory) + 1023u) & ~1023u;
  const u32 full = shared_address(barriers), empty = full + 8 * STAGES;
  const int warp = threadIdx.x / 32;
  const int tile = blockIdx.x / SPLIT, rank = blockIdx.x % SPLIT, first_token = blockIdx.y * TOK;
  const int k_steps = args.k_steps;
  const int first = threadIdx.x / TOKEN_LANES;
  Fetched fetched;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, WARPGROUPS);
    }
    barriers_are_made();
  }
  __syncthreads();
  launch_dependents();

  if (warp == WARPS) {
    if (threadIdx.x % 32 == 0) {
      const int first_k = rank * k_steps * 64;
#if EPILOGUE == SWIGLU
      const int rows[2] = {tile * 64, args.second_row + tile * 64};
#else
      const int rows[2] = {tile * FT, tile * FT + 64};
#endif
      const int ahead = k_steps < STAGES ? k_steps : STAGES;
      for (int step = 0; step < ahead; ++step) {
        const u32 at = base + step * STAGE_BYTES, barrier = full + 8 * step;
        barrier_expect(barrier, STAGE_BYTES);
        load_weights(at, &w_map, first_k + 64 * step, rows, barrier);
      }
      wait_for_predecessor();
      for (int step = 0; step < ahead; ++step)
        load_tile(base + step * STAGE_BYTES + W_BYTES, &x_map, first_k + 64 * step, first_token,
                  full + 8 * step);
      for (int step = ahead; step < k_steps; ++step) {
        const int stage = step % STAGES;
        const u32 at = base + stage * STAGE_BYTES, barrier = full + 8 * stage;
        barrier_wait(empty + 8 * stage, (step / STAGES - 1) & 1);
        barrier_expect(barrier, STAGE_BYTES);
        load_weights(at, &w_map, first_k + 64 * step, rows, barrier);
        load_tile(at + W_BYTES, &x_map, first_k + 64 * step, first_token, barrier);
      }
    }
    __syncwarp();
  } else {
    const int group = warp / 4;
    fetch_constants(args, fetched, tile, rank, first, first_token);
    wait_for_predecessor();
    fetch_written(args, fetched, tile, rank, first, first_token);
    float acc[TOK / 2];
    for (int step = 0; step < k_steps; ++step) {
      const int stage = step % STAGES;
      barrier_wait(full + 8 * stage, (step / STAGES) & 1);
      const u64 w = descriptor(base + stage * STAGE_BYTES + group * TILE_BYTES);
      const u64 x = descriptor(base + stage * STAGE_BYTES + W_BYTES);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma(acc, w + 2 * k, x + 2 * k, step || k);
      products_commit();
      products_wait<1>();  // the step before is done with its stage
      if (step && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * ((step - 1) % STAGES));
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < TOK / 2; ++i) is_made(acc[i]);
    // Both warpgroups are done with the tiles that the exchange buffer is written over.
    first_threads_meet<128 * WARPGROUPS>();
    const int lane = threadIdx.x % 32;
    // A fragment: rows lane / 4 and 8 more of the warp's 16, columns 2 (lane % 4) and one more.
    const int feature = 16 * warp + lane / 4;
    const u32 at = base + 4 * (2 * (lane % 4) * ROW + feature);
#pragma unroll
    for (int block = 0; block < TOK / 8; ++block) {
      const u32 to = at + 4 * 8 * ROW * block;
      store_shared(to, acc[4 * block]);
      store_shared(to + 4 * ROW, acc[4 * block + 1]);
      store_shared(to + 32, acc[4 * block + 2]);
      store_shared(to + 4 * ROW + 32, acc[4 * block + 3]);
    }
  }
#if SPLIT > 1
  cluster_arrive();
  cluster_wait();
#else
  __syncthreads();
#endif

  if (warp < WARPS) {
    const int lane_of_token = threadIdx.x % TOKEN_LANES;
    float sum[ROUNDS][4];
    gather(sum, base, rank, first);
    cluster_arrive();
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      const int token = first_token + own_token(rank, first, i);
      const bool is_mine = has_token(first, i);  // all lanes shuffle
      float(&value)[4] = sum[i];
#if EPILOGUE == QKV
#pragma unroll
      for (int j = 0; j < 4; ++j) value[j] *= fetched.scale[i];
      if (tile < args.num_rotated) {
        float squares = 0.f;
#pragma unroll
        for (int j = 0; j < 4; ++j) squares += value[j] * value[j];
        const float norm = rsqrtf(token_sum(squares) * (1.f / 128.f) + args.head_eps);
        const float sign = lane_of_token < 16 ? -1.f : 1.f;
        const float cos[4] = {fetched.cos[i].x, fetched.cos[i].y, fetched.cos[i].z,
                              fetched.cos[i].w};
        const float sin[4] = {fetched.sin[i].x, fetched.sin[i].y, fetched.sin[i].z,
                              fetched.sin[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          value[j] *= norm * fetched.head_weight[j];
          const float other = __shfl_xor_sync(0xFFFFFFFFu, value[j], 16);
          value[j] = value[j] * cos[j] + sign * other * sin[j];
        }
      }
      if (is_mine)
        ((uint2*)args.out)[((long)token * args.row_stride + tile * 128) / 4 + lane_of_token] =
            make_uint2(pack(value[0], value[1]), pack(value[2], value[3]));
#elif EPILOGUE == SWIGLU
      // Half of the lanes have 4 values of gate, the others 4 of up: each keeps 2 and takes 2.
      const bool has_gate = lane_of_token < 16;
      float activated[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float kept = fetched.scale[i] * (has_gate ? value[j] : value[2 + j]);
        const float given = fetched.scale[i] * (has_gate ? value[2 + j] : value[j]);
        const float taken = __shfl_xor_sync(0xFFFFFFFFu, given, 16);
        const float gate = has_gate ? kept : taken, up = has_gate ? taken : kept;
        activated[j] = __fdividef(gate, 1.f + __expf(-gate)) * up;
      }
      if (is_mine)
        ((u32*)args.out)[((long)token * args.row_stride + tile * 64) / 2 + lane_of_token % 16 * 2 +
                         !has_gate] = pack(activated[0], activated[1]);
#elif EPILOGUE == PROJECT || EPILOGUE == GELU
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        value[j] = fetched.scale[i] * (value[j] - fetched.mean[i] * fetched.mean_part[j]) +
                   fetched.shift[j];
#if EPILOGUE == GELU
        value[j] *= 0.5f + 0.5f * erff(value[j] * 0.70710678f);
#endif
      }
      if (is_mine)
        ((uint2*)args.out)[stream_index(args, token, tile)] =
            make_uint2(pack(value[0], value[1]), pack(value[2], value[3]));
#else
      float after[4];
      unpack4(fetched.stream[i], after);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#if EPILOGUE == POSTNORM
        after[j] = (after[j] - fetched.mean[i]) * fetched.scale[i] * fetched.norm_weight[j] +
                   fetched.shift[j];
#endif
        after[j] += value[j];
      }
      const uint2 rounded = make_uint2(pack(after[0], after[1]), pack(after[2], after[3]));
      unpack4(rounded, after);
      float sum_of_token = 0.f, squares = 0.f;
#pragma unroll
      for (int j = 0; j < 4; ++j) sum_of_token += after[j], squares += after[j] * after[j];
      sum_of_token = token_sum(sum_of_token);
      squares = token_sum(squares);
      if (is_mine) {
        const long index = stream_index(args, token, tile);
        ((uint2*)args.out)[index] = rounded;
#pragma unroll
        for (int j = 0; j < 4; ++j) after[j] *= fetched.next_weight[j];
        ((uint2*)args.scaled)[index] =
            make_uint2(pack(after[0], after[1]), pack(after[2], after[3]));
        if (lane_of_token == 0)
          ((float2*)args.sums_out)[(long)token * (args.row_stride / 64) + tile] =
              make_float2(sum_of_token, squares);
      }
#endif
    }
  } else {
    cluster_arrive();
  }
  // Peers may still be reading this block's shared memory.
  __syncwarp();
  cluster_wait();
}

#if EPILOGUE == RESIDUAL
// The stream's start: rows of the embedding table, plus rows of `second` if there is one, with the
// stream's companions. A warp a token and 64 features: grid (N / 64, T / 4), 128 threads.
extern "C" __global__ void __launch_bounds__(128)
    small_embed(const u32* table, const int* token_ids, const u32* second, const int* second_ids,
                const u32* next_weight, u32* stream, u32* scaled, float2* sums, int width,
                int num_tokens) {
  const int lane = threadIdx.x % 32, token = blockIdx.y * 4 + threadIdx.x / 32;
  const int column = blockIdx.x * 32 + lane;
  const float2 weight = unpack(next_weight[column]);
  wait_for_predecessor();
  launch_dependents();
  if (token >= num_tokens) return;
  u32 pair = table[(long)token_ids[token] * (width / 2) + column];
  float2 value = unpack(pair);
  if (second) {
    const float2 more = unpack(second[(long)second_ids[token] * (width / 2) + column]);
    pair = pack(value.x + more.x, value.y + more.y);
    value = unpack(pair);
  }
  const long index = (long)token * (width / 2) + column;
  stream[index] = pair;
  scaled[index] = pack(value.x * weight.x, value.y * weight.y);
  float sum = value.x + value.y, squares = value.x * value.x + value.y * value.y;
#pragma unroll
  for (int step = 16; step; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
  }
  if (lane == 0) sums[(long)token * (width / 64) + blockIdx.x] = make_float2(sum, squares);
}
#endif
