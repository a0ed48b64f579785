// `hopper.cuh` for a CPU: one cluster of blocks at a time, its threads as coroutines, so that a
// kernel's own source runs where there is no card. Shared memory is NaN before each block. What the
// copy engine and the products do with addresses is written from the PTX manual (tensor copies,
// swizzling modes, wgmma's shared memory layouts and fragments).
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__
#define SHARED_ARRAY(type, name, count) \
  type* const name = (type*)own_array(sizeof(type) * (count), alignof(type))

typedef unsigned int u32;
typedef unsigned long long u64;
using std::max;
using std::min;

struct uint2 {
  u32 x, y;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static float2 make_float2(float x, float y) { return {x, y}; }

struct Index {
  u32 x, y;
};
static Index threadIdx, blockIdx, gridDim;

[[noreturn]] static void fail(const char* what) {
  fprintf(stderr, "emulator: block %u %u, thread %u: %s\n", blockIdx.x, blockIdx.y, threadIdx.x,
          what);
  abort();
}

// Threads. `of_cluster` is the number of all threads of a cluster.

struct Thread {
  ucontext_t context;
  std::unique_ptr<unsigned char[]> stack;
  bool has_ended;
};
static const int MOST_BLOCKS = 8, MOST_THREADS = 288, STACK_BYTES = 1 << 16;
static Thread threads[MOST_BLOCKS * MOST_THREADS];
static ucontext_t scheduler;
static int current, of_block, of_cluster;
static long idle_switches;

static int rank() { return current / of_block; }
static void progress() { idle_switches = 0; }

static void give_way() {
  if (++idle_switches > 100l * of_cluster) fail("all threads wait");
  swapcontext(&threads[current].context, &scheduler);
}

// A number of threads that meet again and again.
struct Meeting {
  int arrived = 0;
  long round = 0;

  long arrive(int count) {
    const long mine = round;
    if (++arrived == count) {
      arrived = 0;
      ++round;
      progress();
    }
    return mine;
  }
  void wait(long mine) {
    while (round == mine) give_way();
  }
  void meet(int count) { wait(arrive(count)); }
};

struct Meetings {
  Meeting block, some, warps[MOST_THREADS / 32], groups[MOST_THREADS / 128 + 1];
};
static Meetings meetings[MOST_BLOCKS];
static Meeting cluster;
static long cluster_round[MOST_BLOCKS * MOST_THREADS];

static void __syncthreads() { meetings[rank()].block.meet(of_block); }
static void __syncwarp() { meetings[rank()].warps[threadIdx.x / 32].meet(32); }
template <int COUNT>
static void first_threads_meet() {
  meetings[rank()].some.meet(COUNT);
}
static void barrier_cluster_arrive() { cluster_round[current] = cluster.arrive(of_cluster); }
static void barrier_cluster_wait() { cluster.wait(cluster_round[current]); }

template <class T>
static T __shfl_xor_sync(u32, T value, int step) {
  static T values[MOST_BLOCKS * MOST_THREADS];
  const int lane = threadIdx.x % 32;
  values[current] = value;
  __syncwarp();
  const T got = values[current - lane + (lane ^ step)];
  __syncwarp();
  return got;
}

// Shared memory: an address is that in the own block, or a peer's with its rank + 1 above bit 20.
// Addresses begin at 16, as a kernel's may be no multiple of 1,024.

static const u32 FIRST_ADDRESS = 16, BLOCK_BYTES = 231 << 10, ARRAY_AT = 229 << 10;
alignas(1024) unsigned char memory[MOST_BLOCKS * BLOCK_BYTES];

static void* own_array(size_t bytes, size_t alignment) {
  if (bytes > BLOCK_BYTES - ARRAY_AT || alignment > 16) fail("an array that has no room");
  return memory + rank() * BLOCK_BYTES + ARRAY_AT;
}

static u32 shared_address(const void* p) {
  return (u32)(((const unsigned char*)p - memory) % BLOCK_BYTES) + FIRST_ADDRESS;
}

static u32 peer_address(u32 address, int peer) {
  if (peer < 0 || peer >= of_cluster / of_block) fail("a peer that is none");
  return address | (u32)(peer + 1) << 20;
}

static unsigned char* shared(u32 address, u32 bytes) {
  const u32 block = address >> 20 ? (address >> 20) - 1 : rank(), at = address & 0xFFFFF;
  if (at < FIRST_ADDRESS || at - FIRST_ADDRESS + bytes > BLOCK_BYTES)
    fail("an address outside the memory");
  return memory + block * BLOCK_BYTES + at - FIRST_ADDRESS;
}

static void load_shared(u32 at, float (&to)[4]) {
  if (at % 16 != FIRST_ADDRESS % 16) fail("16 bytes at another place than a multiple of 16");
  memcpy(to, shared(at, 16), 16);
}
static void load_of_peer(u32 at, float (&to)[4]) { load_shared(at, to); }
static void store_shared(u32 to, float value) { memcpy(shared(to, 4), &value, 4); }

// Beside the memory, where a kernel that writes over one would break it.
struct BarrierState {
  int count, arrived, bytes, phase;
};
static std::vector<std::pair<const void*, BarrierState>> barriers_of_cluster;

static BarrierState& barrier_at(u32 address) {
  if (address % 8) fail("a barrier at no multiple of 8");
  const void* const at = shared(address, 8);
  for (auto& [known, state] : barriers_of_cluster)
    if (known == at) return state;
  fail("a barrier that was not made");
}
static void barrier_init(u32 address, u32 count) {
  barriers_of_cluster.push_back({shared(address, 8), {(int)count, 0, 0, 0}});
}
static void barriers_are_made() {}
static void end_phase(BarrierState& barrier) {
  if (barrier.bytes < 0 || barrier.arrived > barrier.count) fail("more than a barrier expects");
  if (barrier.arrived == barrier.count && barrier.bytes == 0) {
    barrier.arrived = 0;
    ++barrier.phase;
  }
  progress();
}
static void barrier_arrive(u32 address) {
  BarrierState& barrier = barrier_at(address);
  ++barrier.arrived;
  end_phase(barrier);
}
static void barrier_expect(u32 address, u32 bytes) {
  BarrierState& barrier = barrier_at(address);
  barrier.bytes += bytes;
  ++barrier.arrived;
  end_phase(barrier);
}
static void barrier_wait(u32 address, u32 parity) {
  while ((u32)(barrier_at(address).phase & 1) == parity) give_way();
  progress();
}

struct TensorMap {
  const unsigned short* matrix;
  long height, width, stride;  // elements
  long rows;                   // of a box of 64 columns
};

// Bits 4 to 6 of an address are those plus, without carry, bits 7 to 9.
static u32 swizzled(u32 address) { return address ^ ((address >> 7 & 7) << 4); }

static void load_tile(u32 to, const TensorMap* map, int column, int row, u32 address) {
  if (to % 1024) fail("a tile at no multiple of 1,024");
  for (int r = 0; r < map->rows; ++r)
    for (int part = 0; part < 8; ++part) {
      unsigned short values[8];
      for (int j = 0; j < 8; ++j) {
        const long x = column + 8 * part + j, y = row + r;
        const bool is_in = x >= 0 && x < map->width && y >= 0 && y < map->height;
        values[j] = is_in ? map->matrix[y * map->stride + x] : 0;
      }
      memcpy(shared(swizzled(to + r * 128 + part * 16), 16), values, 16);
    }
  BarrierState& barrier = barrier_at(address);
  barrier.bytes -= map->rows * 128;
  end_phase(barrier);
}

static void wait_for_predecessor() {}
static void launch_dependents() {}

// Numbers

static float of_bits(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static u32 to_bf16(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return std::isnan(value) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static float2 unpack(u32 pair) { return {of_bits(pair << 16), of_bits(pair & 0xFFFF0000u)}; }
static u32 pack(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
#define rsqrtf(value) (1.f / sqrtf(value))  // names that a C library may have
#define __expf(value) expf(value)
#define __fdividef(a, b) ((a) / (b))

// Products, of 16 of the depth

static void products_begin() {}
static void products_commit() {}
template <int LEFT>
static void products_wait() {}
static void is_made(float&) {}

static u64 descriptor(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// Element of an operand: `depth`, and `other`, the row of the left or the column of the right one.
static float element(u64 operand, int depth, int other) {
  const u32 start = (operand & 0x3FFF) << 4, stride = (operand >> 32 & 0x3FFF) << 4;
  if (operand >> 62 != 1) fail("an operand in another swizzle than that of 128 bytes");
  const u32 at = start + other / 8 * stride + other % 8 * 128 + depth * 2;
  unsigned short bits;
  memcpy(&bits, shared(swizzled(at), 2), 2);
  return of_bits((u32)bits << 16);
}

template <int FLOATS>
static void product(float (&d)[FLOATS], u64 left, u64 right, int is_more) {
  Meeting& group = meetings[rank()].groups[threadIdx.x / 128];
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  group.meet(128);
  for (int j = 0; j < FLOATS; ++j) {
    const int column = j / 4 * 8 + lane % 4 * 2 + j % 2, half = j / 2 % 2;
    float sum = is_more ? d[j] : 0.f;
    for (int k = 0; k < 16; ++k) sum += element(left, k, row + 8 * half) * element(right, k, column);
    d[j] = sum;
  }
  group.meet(128);
}

// Launches

static void (*kernel_body)();

static void thread_main() {
  kernel_body();
  threads[current].has_ended = true;
  progress();
  while (true) give_way();
}

static void run_cluster(u32 first_x, u32 y) {
  memset(memory, 0xFF, of_cluster / of_block * BLOCK_BYTES);
  std::fill(std::begin(meetings), std::end(meetings), Meetings{});
  cluster = Meeting{};
  barriers_of_cluster.clear();
  progress();
  for (int i = 0; i < of_cluster; ++i) {
    Thread& thread = threads[i];
    thread.has_ended = false;
    if (!thread.stack) thread.stack.reset(new unsigned char[STACK_BYTES]);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&thread.context, thread_main, 0);
  }
  // A warp may lag behind for a while, as on a card: a barrier that is missing is to show.
  u32 random = 1, lags = 0;
  for (int left = of_cluster; left;)
    for (current = left = 0; current < of_cluster; ++current) {
      if (threads[current].has_ended) continue;
      ++left;
      threadIdx = {(u32)(current % of_block), 0};
      if (threadIdx.x % 32 == 0) {
        random = random * 1664525u + 1013904223u;
        if (random >> 30 == 0) lags ^= 1u << current / 32 % 32;
      }
      if (lags >> current / 32 % 32 & 1) continue;
      blockIdx = {first_x + rank(), y};
      swapcontext(&scheduler, &threads[current].context);
      left -= threads[current].has_ended;
    }
}

template <class... Parameters, size_t... I>
static void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
  kernel(*(std::remove_cv_t<Parameters>*)arguments[I]...);
}

// `arguments` are addresses of the kernel's parameters; thread blocks of a cluster lie along x.
template <class... Parameters>
static void launch(void (*kernel)(Parameters...), void** arguments, int grid_x, int grid_y,
                   int block_threads, int cluster_blocks) {
  static void (*the_kernel)(Parameters...);
  static void** the_arguments;
  the_kernel = kernel, the_arguments = arguments;
  kernel_body = [] { call(the_kernel, the_arguments, std::index_sequence_for<Parameters...>()); };
  of_block = block_threads, of_cluster = block_threads * cluster_blocks;
  gridDim = {(u32)grid_x, (u32)grid_y};
  for (int y = 0; y < grid_y; ++y)
    for (int x = 0; x < grid_x; x += cluster_blocks) run_cluster(x, y);
}
