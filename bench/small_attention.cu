// Attention of steps of a few hundred tokens, by the tensor cores' own loads.
//
//     out = softmax(scale Q K^T) V within each sequence
//
// A block is one warpgroup: 64 queries of a head are the 64 rows of a wgmma, keys its columns. It
// finds its sequence from the offsets before it waits for the kernel in front; then all tiles that
// fit are on their way at once. Scores stay in registers and are the left operand of the second
// product as they lie (FlashAttention 3, arXiv 2407.08608).
//
// The copy engine brings whole boxes of 32 rows: those past a sequence are another's. Its keys are
// masked, its values made zeros, since a NaN times a weight of 0 is a NaN.
//
// Defined by the launcher: HEAD_DIM (64 or 128), KEYS a tile (a multiple of 32), STAGES, CAUSAL, and
// multiply_scores (64 x KEYS += Q K^T), multiply_values (64 x HEAD_DIM += P V), 16 of the depth each.

#include "hopper.cuh"

#define QUERIES 64
#define THREADS 128
#define CHUNKS (HEAD_DIM / 64)  // of 64 columns, a row of 128 bytes
#define BOX_ROWS 32
#define BOX_BYTES (BOX_ROWS * 128)
#define Q_BYTES (CHUNKS * QUERIES * 128)
#define KV_BYTES (CHUNKS * KEYS * 128)

struct Args {
  u64 out;      // BF16 [T, num_heads HEAD_DIM]
  u64 offsets;  // int32 [num_slots + 1]
  int num_slots;
  int num_heads;
  int num_kv_heads;
  float scale;  // of the scores, times log2(e)
};

struct Tile {
  int start;   // row of the sequence's first token
  int length;  // tokens; 0 past the last tile
  int first;   // query, in the sequence
};

// Tiles are numbered through the sequences in order; each warp looks for itself.
__device__ __forceinline__ Tile find_tile(const int* offsets, int num_slots, int tile) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int slot = lane; slot - lane < num_slots; slot += 32) {
    const int start = slot < num_slots ? offsets[slot] : 0;
    const int length = slot < num_slots ? offsets[slot + 1] - start : 0;
    const int tiles = (length + QUERIES - 1) / QUERIES;
    int up_to = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int more = __shfl_up_sync(0xFFFFFFFFu, up_to, step);
      if (lane >= step) up_to += more;
    }
    up_to += before;
    const u32 past = __ballot_sync(0xFFFFFFFFu, up_to > tile);
    if (past) {
      const int source = __ffs(past) - 1;
      Tile found;
      found.start = __shfl_sync(0xFFFFFFFFu, start, source);
      found.length = __shfl_sync(0xFFFFFFFFu, length, source);
      found.first = (tile - __shfl_sync(0xFFFFFFFFu, up_to - tiles, source)) * QUERIES;
      return found;
    }
    before = __shfl_sync(0xFFFFFFFFu, up_to, 31);
  }
  return Tile{0, 0, 0};
}

// `rows` rows of HEAD_DIM columns from `column` on, in boxes; chunk after chunk of 64 columns.
__device__ __forceinline__ void load_rows(u32 to, const TensorMap* map, int column, int row,
                                          int rows, int room, u32 barrier) {
  for (int chunk = 0; chunk < CHUNKS; ++chunk)
    for (int box = 0; box < rows; box += BOX_ROWS)
      load_tile(to + (chunk * room + box) * 128, map, column + 64 * chunk, row + box, barrier);
}

__device__ __forceinline__ u32 boxes_bytes(int rows) {
  return (rows + BOX_ROWS - 1) / BOX_ROWS * CHUNKS * BOX_BYTES;
}

// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    small_attention(const __grid_constant__ TensorMap map, const __grid_constant__ Args args) {
  extern __shared__ unsigned char memory[];
  const u32 base = (shared_address(memory) + 1023u) & ~1023u;
  const u32 with_keys = base + Q_BYTES + STAGES * 2 * KV_BYTES, with_values = with_keys + 8 * STAGES;
  const int head = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * STAGES; ++i) barrier_init(with_keys + 8 * i, 1);
    barriers_are_made();
  }
  __syncthreads();
  launch_dependents();
  const Tile tile = find_tile((const int*)args.offsets, args.num_slots, blockIdx.x);
  if (tile.length == 0) return;

  const int num_queries = min(QUERIES, tile.length - tile.first);
  const int stop = CAUSAL ? tile.first + num_queries : tile.length;
  const int num_tiles = (stop + KEYS - 1) / KEYS;
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const int k_column = (args.num_heads + kv_head) * HEAD_DIM;
  const int v_column = k_column + args.num_kv_heads * HEAD_DIM;

  auto load = [&](int i) {
    const int rows = min(KEYS, stop - i * KEYS), stage = i % STAGES, row = tile.start + i * KEYS;
    const u32 keys = base + Q_BYTES + stage * 2 * KV_BYTES, barrier = with_keys + 8 * stage;
    barrier_expect(barrier, boxes_bytes(rows) + (i == 0 ? boxes_bytes(num_queries) : 0));
    if (i == 0)
      load_rows(base, &map, head * HEAD_DIM, tile.start + tile.first, num_queries, QUERIES, barrier);
    load_rows(keys, &map, k_column, row, rows, KEYS, barrier);
    barrier_expect(with_values + 8 * stage, boxes_bytes(rows));
    load_rows(keys + KV_BYTES, &map, v_column, row, rows, KEYS, with_values + 8 * stage);
  };
  wait_for_predecessor();
  if (threadIdx.x == 0)
    for (int i = 0; i < STAGES && i < num_tiles; ++i) load(i);

  // A fragment: rows lane / 4 and 8 more of the warp's 16, columns 2 (lane % 4) and one more, of each
  // 8 columns.
  const int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
  float largest[2] = {minus_infinity(), minus_infinity()}, total[2] = {0.f, 0.f};
  float out[HEAD_DIM / 2];
  for (int i = 0; i < num_tiles; ++i) {
    const int stage = i % STAGES, parity = (i / STAGES) & 1, rows = min(KEYS, stop - i * KEYS);
    const u32 keys = base + Q_BYTES + stage * 2 * KV_BYTES, values = keys + KV_BYTES;
    float scores[KEYS / 2];
    barrier_wait(with_keys + 8 * stage, parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; ++k)
      multiply_scores(scores, descriptor(base + k / 4 * QUERIES * 128) + k % 4 * 2,
                      descriptor(keys + k / 4 * KEYS * 128) + k % 4 * 2, k);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int j = 0; j < KEYS / 2; ++j) is_made(scores[j]);

    float highest[2] = {largest[0], largest[1]};
    const int last = CAUSAL ? tile.first + row - i * KEYS : 0;  // key that the first row sees
    const bool is_cut = rows < KEYS || (CAUSAL && tile.first < (i + 1) * KEYS);
#pragma unroll
    for (int j = 0; j < KEYS / 2; ++j) {
      const int key = j / 4 * 8 + column + j % 2, half = j / 2 % 2;
      if (is_cut && (key >= rows || (CAUSAL && key > last + 8 * half))) scores[j] = minus_infinity();
      highest[half] = fmaxf(highest[half], scores[j]);
    }
    float rescale[2], shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = row_max(highest[half]);
      rescale[half] = exp2_of((largest[half] - highest[half]) * args.scale);
      largest[half] = highest[half];
      total[half] *= rescale[half];
      shift[half] = largest[half] * args.scale;
    }
#pragma unroll
    for (int j = 0; j < KEYS / 2; ++j) {
      const int half = j / 2 % 2;
      scores[j] = exp2_of(scores[j] * args.scale - shift[half]);
      total[half] += scores[j];
    }
    u32 weights[KEYS / 4];
#pragma unroll
    for (int j = 0; j < KEYS / 4; ++j) weights[j] = pack(scores[2 * j], scores[2 * j + 1]);
    if (i)
#pragma unroll
      for (int j = 0; j < HEAD_DIM / 2; ++j) out[j] *= rescale[j / 2 % 2];

    barrier_wait(with_values + 8 * stage, parity);
    if (rows < KEYS) {
      // 8 parts of 16 bytes a row and chunk.
      for (int part = threadIdx.x; part < (KEYS - rows) * 8 * CHUNKS; part += THREADS)
        store_zeros(values + (rows + part / 8 % (KEYS - rows)) * 128 +
                    part / 8 / (KEYS - rows) * KEYS * 128 + part % 8 * 16);
      stores_are_seen();
      __syncthreads();
    }
    products_begin();
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k)
      multiply_values(out, weights + 4 * k, descriptor(values, KEYS * 128) + k * 128, i || k);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 2; ++j) is_made(out[j]);
    if (i + STAGES < num_tiles) {
      __syncthreads();  // all have read the stage
      if (threadIdx.x == 0) load(i + STAGES);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float inverse = 1.f / row_sum(total[half]);
    const int query = row + 8 * half;
    if (query >= num_queries) continue;
    const long at = (long)(tile.start + tile.first + query) * args.num_heads + head;
    u32* const to = (u32*)args.out + (at * HEAD_DIM + column) / 2;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 8; ++j)
      to[4 * j] = pack(out[4 * j + 2 * half] * inverse, out[4 * j + 2 * half + 1] * inverse);
  }
}
