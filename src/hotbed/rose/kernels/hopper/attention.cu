// Attention of a step of few tokens, straight from the packed QKV projection.
//
//     softmax(Q K^T * scale) V within each sequence
//
// At this size it is latency: so a block has few rows and many warps, everything it needs of a round
// comes in one batch of copies, and its shared memory is small enough to lie beside the kernel in
// front of it, so that it has found its sequence when that one ends. A block takes one head and 32
// rows of queries of one sequence; its 8 warps are 2 groups of 16 rows times 4 shares of 32 keys of
// each round of 128. Each warp keeps a softmax of its own over its keys (online over rounds); the
// four are joined at the end, in a fixed order.
//
// Rows of shared memory hold their 16-byte chunks in the order chunk ^ (row % 8), so that neither
// the copies nor ldmatrix meet in a bank. Keys and values past a sequence are zeros, never another
// sequence's.
//
// Defined by the launcher (attention.py): HEAD_DIM (64 or 128), HEADS, KV_HEADS, CAUSAL.

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256
#define ROWS 32        // queries of a block
#define KEYS 128       // of a round
#define WARP_KEYS 32   // of a warp and round
#define CHUNKS (HEAD_DIM / 8)
#define ROW_BYTES (HEAD_DIM * 2)
#define K_AT (ROWS * ROW_BYTES)
#define V_AT (K_AT + KEYS * ROW_BYTES)
// Joining: fp32 rows, 8 floats longer, so that the rows of a fragment lie in different banks.
#define SUM_ROW (HEAD_DIM + 8)
#define D_TILES (HEAD_DIM / 8)
#define LEAST __int_as_float(0xFF800000)  // minus infinity
#define QKV_ROW ((HEADS + 2 * KV_HEADS) * HEAD_DIM)

__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ u32 chunk_at(u32 base, int row, int chunk) {
  return base + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4);
}

// 16 bytes, or zeros.
__device__ __forceinline__ void copy_chunk(u32 to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

__device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// d [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pack(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Largest or sum over the four lanes that share a row of a fragment.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// Where the block's tile of queries lies: thread i looks at slot i.
struct Place {
  int start, length, first;
};

__device__ __forceinline__ Place find_place(const int* cu_seqlens, int slots, int tile) {
  __shared__ int of_warp[THREADS / 32];
  __shared__ Place found;
  const int slot = threadIdx.x, lane = slot % 32;
  int start = 0, length = 0;
  if (slot < slots) start = cu_seqlens[slot], length = cu_seqlens[slot + 1] - start;
  const int tiles = (length + ROWS - 1) / ROWS;
  int up_to = tiles;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFu, up_to, step);
    if (lane >= step) up_to += before;
  }
  if (lane == 31) of_warp[slot / 32] = up_to;
  if (slot == 0) found = {0, 0, 0};
  __syncthreads();
  for (int warp = 0; warp < slot / 32; ++warp) up_to += of_warp[warp];
  const int own = tile - (up_to - tiles);
  if (own >= 0 && own < tiles) found = {start, length, own * ROWS};
  __syncthreads();
  return found;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    short_attention(const unsigned short* qkv, const int* cu_seqlens, unsigned short* out,
                    int slots, float scale_log2) {
  extern __shared__ uint4 memory[];
  __shared__ float largest_of[8][16], total_of[8][16];
  const u32 base = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int rows = warp / 4 * 16, share = warp % 4 * WARP_KEYS;  // of the block, of a round
  const int head = blockIdx.y, kv_head = head / (HEADS / KV_HEADS);
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const Place place = find_place(cu_seqlens, slots, blockIdx.x);
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (place.length == 0) return;  // past the last tile

  const unsigned short* q = qkv + (long)place.start * QKV_ROW + head * HEAD_DIM;
  const unsigned short* k = qkv + (long)place.start * QKV_ROW + (HEADS + kv_head) * HEAD_DIM;
  const unsigned short* v = k + KV_HEADS * HEAD_DIM;
  for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
    const int row = i / CHUNKS, chunk = i % CHUNKS, from = place.first + row;
    const bool is_there = from < place.length;
    copy_chunk(chunk_at(base, row, chunk), q + (long)(is_there ? from : 0) * QKV_ROW + 8 * chunk,
               is_there);
  }
  const int end = CAUSAL ? min(place.length, place.first + ROWS) : place.length;
  float acc[D_TILES][4], largest[2], total[2];
#pragma unroll
  for (int i = 0; i < D_TILES; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.f;
  largest[0] = largest[1] = LEAST;
  total[0] = total[1] = 0.f;

  for (int round = 0; round < end; round += KEYS) {
    if (round) __syncthreads();  // all warps are done with the keys before
    const int used = min(KEYS, (end - round + WARP_KEYS - 1) / WARP_KEYS * WARP_KEYS);
    for (int i = threadIdx.x; i < used * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, chunk = i % CHUNKS, from = round + row;
      const bool is_there = from < place.length;
      const long at = (long)(is_there ? from : 0) * QKV_ROW + 8 * chunk;
      copy_chunk(chunk_at(base + K_AT, row, chunk), k + at, is_there);
      copy_chunk(chunk_at(base + V_AT, row, chunk), v + at, is_there);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (share >= used) continue;

    float score[WARP_KEYS / 8][4];
#pragma unroll
    for (int i = 0; i < WARP_KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) score[i][j] = 0.f;
#pragma unroll
    for (int d = 0; d < HEAD_DIM / 16; ++d) {
      u32 a[4];
      load_matrices(a, chunk_at(base, rows + lane % 16, 2 * d + lane / 16));
#pragma unroll
      for (int pair = 0; pair < WARP_KEYS / 16; ++pair) {
        u32 b[4];
        const int key = share + 16 * pair + lane / 16 * 8 + lane % 8;
        load_matrices(b, chunk_at(base + K_AT, key, 2 * d + lane / 8 % 2));
        mma(score[2 * pair], a, b[0], b[1]);
        mma(score[2 * pair + 1], a, b[2], b[3]);
      }
    }
    // A fragment: rows lane / 4 and 8 more, columns 2 (lane % 4) and one more.
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int i = 0; i < WARP_KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = round + share + 8 * i + 2 * (lane % 4) + j % 2;
        const int query = place.first + rows + lane / 4 + j / 2 * 8;
        const bool is_seen = key < place.length && (!CAUSAL || key <= query);
        score[i][j] = is_seen ? score[i][j] * scale_log2 : LEAST;
        most[j / 2] = fmaxf(most[j / 2], score[i][j]);
      }
    float shift[2], sums[2] = {0.f, 0.f};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = row_max(most[half]);
      shift[half] = most[half] == LEAST ? 0.f : most[half];  // nothing seen yet
      const float rescale = exp2f(largest[half] - shift[half]);
      largest[half] = most[half];
      total[half] *= rescale;
#pragma unroll
      for (int i = 0; i < D_TILES; ++i) acc[i][2 * half] *= rescale, acc[i][2 * half + 1] *= rescale;
    }
#pragma unroll
    for (int i = 0; i < WARP_KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        score[i][j] = exp2f(score[i][j] - shift[j / 2]);
        sums[j / 2] += score[i][j];
      }
    total[0] += row_sum(sums[0]);
    total[1] += row_sum(sums[1]);
#pragma unroll
    for (int part = 0; part < WARP_KEYS / 16; ++part) {
      const float(&low)[4] = score[2 * part];
      const float(&high)[4] = score[2 * part + 1];
      const u32 a[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                        pack(high[2], high[3])};
#pragma unroll
      for (int d = 0; d < HEAD_DIM / 16; ++d) {
        u32 b[4];
        load_transposed(b, chunk_at(base + V_AT, share + 16 * part + lane % 16, 2 * d + lane / 16));
        mma(acc[2 * d], a, b[0], b[1]);
        mma(acc[2 * d + 1], a, b[2], b[3]);
      }
    }
  }

  // The four shares of each row, joined; over the memory of queries, keys and values.
  __syncthreads();
  float* sums = (float*)memory;
  if (lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest_of[warp][lane / 4 + 8 * half] = largest[half];
      total_of[warp][lane / 4 + 8 * half] = total[half];
    }
  }
#pragma unroll
  for (int i = 0; i < D_TILES; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *(float2*)(sums + (warp * 16 + lane / 4 + 8 * half) * SUM_ROW + 8 * i + 2 * (lane % 4)) =
          make_float2(acc[i][2 * half], acc[i][2 * half + 1]);
  __syncthreads();
  const int row = threadIdx.x / 8, query = place.first + row;
  if (query >= place.length) return;
  const int of_group = row / 16 * 4, of_row = row % 16;
  float most = largest_of[of_group][of_row], factor[4], all = 0.f;
#pragma unroll
  for (int i = 1; i < 4; ++i) most = fmaxf(most, largest_of[of_group + i][of_row]);
  if (most == LEAST) most = 0.f;  // every score is NaN: so will be the sums
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    factor[i] = exp2f(largest_of[of_group + i][of_row] - most);
    all += factor[i] * total_of[of_group + i][of_row];
  }
  const float scale = 1.f / all;
  unsigned short* to = out + (long)(place.start + query) * HEADS * HEAD_DIM + head * HEAD_DIM;
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 32; ++i) {
    const int column = 32 * i + threadIdx.x % 8 * 4;
    float4 value = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 part =
          *(const float4*)(sums + ((of_group + j) * 16 + of_row) * SUM_ROW + column);
      value.x += factor[j] * part.x, value.y += factor[j] * part.y;
      value.z += factor[j] * part.z, value.w += factor[j] * part.w;
    }
    *(uint2*)(to + column) = make_uint2(pack(value.x * scale, value.y * scale),
                                        pack(value.z * scale, value.w * scale));
  }
}
