// What the parts of one persistent kernel for a whole model would cost; see persistent.py.

#include "hopper.cuh"

#define THREADS 256
#define PATIENCE 2000000

// All blocks of the grid have come here `round` times; false if they do not within PATIENCE looks.
__device__ __forceinline__ bool grid_barrier(u32* counter, u32 round) {
  __shared__ int gave_up;
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 goal = round * gridDim.x;
    u32 seen, looks = 0;
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < goal && ++looks < PATIENCE);
    gave_up = seen < goal;
  }
  __syncthreads();
  return !gave_up;
}

__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// KIND 0: a grid barrier. 1: each block writes `bytes` / blocks of a buffer, barrier, each block
// reads all of it. 2: each block adds `bytes` of fp32 to a buffer of that size with red, barrier.
// 3: a cluster barrier. 4: each block writes `bytes` to each block of its cluster, cluster barrier.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    parts(u32* counter, float4* buffer, float* sink, u32* failed, int bytes, int rounds) {
  extern __shared__ float4 memory[];
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
  const int items = bytes / 16;
  for (int round = 1; round <= rounds; ++round) {
#if KIND == 1
    const int own = items / gridDim.x;
    float4* to = buffer + (round & 1) * items;
    for (int i = threadIdx.x; i < own; i += THREADS)
      to[blockIdx.x * own + i] = make_float4(round, round, round, round);
#elif KIND == 2
    for (int i = threadIdx.x; i < items; i += THREADS)
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(
                       buffer + (blockIdx.x % 8) * items + i),
                   "f"(1.f)
                   : "memory");
#elif KIND == 4
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    for (int peer = 0; peer < CLUSTER; ++peer) {
      u32 to;
      asm("mapa.shared::cluster.u32 %0, %1, %2;"
          : "=r"(to)
          : "r"(shared_address(memory)), "r"((rank + peer) % CLUSTER));
      for (int i = threadIdx.x; i < items; i += THREADS)
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %1, %1, %1};" ::"r"(
                         to + 16 * (rank * items + i)),
                     "f"((float)round)
                     : "memory");
    }
#endif
#if KIND >= 3
    cluster_barrier();
#else
    if (!grid_barrier(counter, round)) {
      if (threadIdx.x == 0) *failed = 1;
      return;
    }
#endif
#if KIND == 1
    for (int i = threadIdx.x; i < items; i += 8 * THREADS) {
      float4 values[8];
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (i + j * THREADS < items) values[j] = __ldcg(to + i + j * THREADS);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (i + j * THREADS < items) sum.x += values[j].x;
    }
#elif KIND == 4
    sum.x += memory[threadIdx.x].x;
#endif
  }
  if (sum.x == -1.f) *sink = sum.x;
#if KIND >= 3
  cluster_barrier();
#endif
}
