// What kernels for Hopper share: barriers, the copy engine, programmatic dependent launch, operands of
// wgmma, pairs of BF16.

typedef unsigned int u32;
typedef unsigned long long u64;

// In a kernel: memory that the threads of a block share.
#define SHARED_ARRAY(type, name, count) __shared__ alignas(8) type name[count]

struct alignas(64) TensorMap {
  u64 opaque[16];
};

__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barriers_are_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void load_tile(u32 to, const TensorMap* map, int k, int row,
                                          u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(k), "r"(row), "r"(barrier)
      : "memory");
}

// Threads 0 to COUNT - 1 of a block meet.
template <int COUNT>
__device__ __forceinline__ void first_threads_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory");
}

__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in another block of the cluster.
__device__ __forceinline__ u32 peer_address(u32 address, int rank) {
  u32 peers;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peers) : "r"(address), "r"(rank));
  return peers;
}

__device__ __forceinline__ void load_of_peer(u32 at, float (&to)[4]) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(at));
}

__device__ __forceinline__ void load_shared(u32 at, float (&to)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(at));
}

__device__ __forceinline__ void store_shared(u32 to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value));
}

__device__ __forceinline__ void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// In front of a series of products: operands in registers are there.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all series but the last `LEFT` are done.
template <int LEFT>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Of a sum that was waited for: the compiler may not read it earlier.
__device__ __forceinline__ void is_made(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

// Tile of 64 BF16 of the depth a row, in the 128-byte swizzle: 8 rows are 1,024 bytes.
__device__ __forceinline__ u64 descriptor(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ float2 unpack(u32 pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
}

__device__ __forceinline__ u32 pack(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
