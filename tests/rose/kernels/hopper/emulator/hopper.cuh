// `hopper.cuh` for a CPU: one block at a time, its threads as coroutines, so that a kernel's own
// source runs where there is no card. Shared memory is poisoned with NaN before each block. What the
// copy engine and the products do with addresses is written from the PTX manual (sections on tensor
// copies, swizzling modes and wgmma's shared memory layouts).

#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__

typedef unsigned int u32;
typedef unsigned long long u64;
using std::max;
using std::min;

struct Index {
  int x, y;
};
static Index threadIdx, blockIdx;
static constexpr int BLOCK_THREADS = 128, SHARED_BYTES = 232448;
alignas(1024) unsigned char memory[SHARED_BYTES + 1024];  // the kernel rounds its start up

struct TensorMap {
  const unsigned short* matrix;
  long height, width, stride;  // elements
  int rows;                    // of a box of 64 columns
};

// Coroutines

static ucontext_t scheduler, threads[BLOCK_THREADS];
static std::vector<unsigned char> stacks[BLOCK_THREADS];
static int current, at_end;
static long switches_without_progress;

[[noreturn]] static void fail(const char* what) {
  fprintf(stderr, "emulator: %s\n", what);
  abort();
}

static void give_way() {
  if (++switches_without_progress > 100 * BLOCK_THREADS) fail("all threads wait");
  swapcontext(&threads[current], &scheduler);
}

static void progress() { switches_without_progress = 0; }

struct Meeting {
  int arrived = 0;
  long round = 0;
  void of(int count) {
    const long mine = round;
    if (++arrived == count) {
      arrived = 0;
      ++round;
      progress();
    } else {
      while (round == mine) give_way();
    }
  }
};
static Meeting of_warp[BLOCK_THREADS / 32], of_block;

static void __syncthreads() { of_block.of(BLOCK_THREADS); }

template <class T>
static T exchange(T value, int source) {
  static T values[BLOCK_THREADS];
  const int warp = threadIdx.x / 32;
  values[threadIdx.x] = value;
  of_warp[warp].of(32);
  const T got = source >= 0 && source < 32 ? values[warp * 32 + source] : value;
  of_warp[warp].of(32);
  return got;
}
template <class T>
static T __shfl_sync(u32, T value, int source) {
  return exchange(value, source);
}
template <class T>
static T __shfl_up_sync(u32, T value, int step) {
  return exchange(value, threadIdx.x % 32 - step);
}
template <class T>
static T __shfl_xor_sync(u32, T value, int step) {
  return exchange(value, (threadIdx.x % 32) ^ step);
}
static u32 __ballot_sync(u32, bool vote) {
  u32 votes = 0;
  for (int lane = 0; lane < 32; ++lane) votes |= (u32)exchange((int)vote, lane) << lane;
  return votes;
}
static int __ffs(u32 bits) { return __builtin_ffs(bits); }

// Memory

static u32 shared_address(const void* p) { return (u32)((const unsigned char*)p - memory) + 16; }

static unsigned char* shared(u32 address, u32 bytes) {
  // 16: an address that is no multiple of 1,024, as a kernel's may be.
  if (address < 16 || address - 16 + bytes > sizeof memory) fail("an address outside the memory");
  return memory + address - 16;
}

// Bits 4 to 6 of an address are those plus, without carry, bits 7 to 9.
static u32 swizzled(u32 address) { return address ^ ((address >> 7 & 7) << 4); }

struct Barrier {
  int pending, phase;
};
static Barrier& barrier_at(u32 address) {
  if (address % 8) fail("a barrier at no multiple of 8");
  return *(Barrier*)shared(address, 8);
}
static void barrier_init(u32 barrier, u32 count) {
  if (count != 1) fail("only barriers of one thread");
  barrier_at(barrier) = {0, 0};
}
static void barriers_are_made() {}
static void barrier_expect(u32 barrier, u32 bytes) {
  if (barrier_at(barrier).pending) fail("a barrier is used before its phase has ended");
  barrier_at(barrier).pending = bytes;
}
static void barrier_wait(u32 barrier, u32 parity) {
  while ((u32)(barrier_at(barrier).phase & 1) == parity) give_way();
  progress();
}

static void load_tile(u32 to, const TensorMap* map, int column, int row, u32 barrier) {
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
  Barrier& waited = barrier_at(barrier);
  waited.pending -= map->rows * 128;
  if (waited.pending < 0) fail("more bytes than a barrier expects");
  if (waited.pending == 0) ++waited.phase;
  progress();
}

static void store_zeros(u32 to) { memset(shared(to, 16), 0, 16); }
static void stores_are_seen() {}
static void wait_for_predecessor() {}
static void launch_dependents() {}
static void products_begin() {}
static void products_commit() {}
template <int LEFT>
static void products_wait() {}
static void is_made(float&) {}
static float exp2_of(float value) { return exp2f(value); }
static float minus_infinity() { return -INFINITY; }

// Numbers

static float of_bf16(unsigned short bits) {
  const u32 wide = (u32)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

static u32 to_bf16(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

static u32 pack(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }

// Products

static u64 descriptor(u32 address) {
  return (u64)((address & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// Element of an operand: `depth` of 16, `other` the row of the left or the column of the right one.
static float element(u64 operand, int depth, int other, bool by_depth) {
  const u32 start = (operand & 0x3FFF) << 4, leading = (operand >> 16 & 0x3FFF) << 4,
            stride = (operand >> 32 & 0x3FFF) << 4;
  if (operand >> 62 != 1) fail("an operand in another swizzle than that of 128 bytes");
  const u32 at = by_depth ? start + other / 64 * leading + other % 64 * 2 + depth / 8 * stride +
                                depth % 8 * 128
                          : start + other / 8 * stride + other % 8 * 128 + depth * 2;
  unsigned short bits;
  memcpy(&bits, shared(swizzled(at), 2), 2);
  return of_bf16(bits);
}

template <int FLOATS, class Left>
static void multiply(float (&d)[FLOATS], Left left, u64 right, int is_more, bool by_depth) {
  const int lane = threadIdx.x % 32, row = 16 * (threadIdx.x / 32) + lane / 4;
  of_block.of(BLOCK_THREADS);
  for (int j = 0; j < FLOATS; ++j) {
    const int column = j / 4 * 8 + lane % 4 * 2 + j % 2, half = j / 2 % 2;
    float sum = is_more ? d[j] : 0.f;
    for (int k = 0; k < 16; ++k) sum += left(k, row + 8 * half) * element(right, k, column, by_depth);
    d[j] = sum;
  }
  of_block.of(BLOCK_THREADS);
}

template <int FLOATS>
static void product(float (&d)[FLOATS], u64 left, u64 right, int is_more, bool by_depth) {
  auto at = [&](int depth, int row) { return element(left, depth, row, false); };
  multiply(d, at, right, is_more, by_depth);
}

template <int FLOATS>
static void product(float (&d)[FLOATS], const u32* left, u64 right, int is_more, bool by_depth) {
  // Pairs of depths 2 (lane % 4) and, for the last two, 8 more; the second and fourth 8 rows below.
  static u32 pairs[BLOCK_THREADS][4];
  memcpy(pairs[threadIdx.x], left, 16);
  auto at = [&](int depth, int row) {
    const int lane = row % 8 * 4 + depth % 8 / 2, pair = depth / 8 * 2 + row % 16 / 8;
    return of_bf16(pairs[row / 16 * 32 + lane][pair] >> (depth % 2 ? 16 : 0));
  };
  multiply(d, at, right, is_more, by_depth);
}

// Blocks

static void (*body)();

static void thread_main() {
  body();
  ++at_end;
  progress();
  while (true) give_way();
}

static void run_block(int x, int y) {
  blockIdx = {x, y};
  memset(memory, 0xFF, sizeof memory);
  of_block = Meeting{};
  for (Meeting& meeting : of_warp) meeting = Meeting{};
  at_end = 0;
  progress();
  for (int i = 0; i < BLOCK_THREADS; ++i) {
    stacks[i].resize(1 << 16);
    getcontext(&threads[i]);
    threads[i].uc_stack.ss_sp = stacks[i].data();
    threads[i].uc_stack.ss_size = stacks[i].size();
    makecontext(&threads[i], thread_main, 0);
  }
  while (at_end < BLOCK_THREADS)
    for (current = 0; current < BLOCK_THREADS; ++current) {
      threadIdx = {current, 0};
      swapcontext(&scheduler, &threads[current]);
    }
}
