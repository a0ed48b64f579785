/* All layers of a BERT encoder for a few rows, in fp32.
 *
 *   h = LayerNorm(h + attention(h));  h = LayerNorm(h + W2 gelu(W1 h))        (bidirectional)
 *
 * A short text is bound by reading the weights once. So they lie in panels, each read from its
 * first byte to its last, while a block of rows stays in registers.
 *
 * Threads: the caller and sleeping workers. A layer is seven stages, a stage is chunks. A thread
 * takes the chunks of its own range, then what is left of the others', and goes on when all are
 * done: a worker that the system does not run holds up nobody. A chunk's result does not depend on
 * who computes it.
 *
 * A counter carries the number of the call it belongs to (epoch) in its upper half, so that a
 * worker which comes late can take nothing of a newer call by mistake.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* Floats of a vector, rows of a block: accumulators (2 a row) and operands fit the registers. */
#if defined(__AVX512F__)
#define VL 16
#define BLOCK_ROWS 14
#elif defined(__AVX__)
#define VL 8
#define BLOCK_ROWS 6
#else
#define VL 4
#define BLOCK_ROWS 6
#endif
#define PANEL (2 * VL)
#define MAX_ROWS 32
#define MAX_THREADS 64
/* Widest activation. A fixed distance of rows, as the GEMM then needs one pointer for all of them;
 * an odd number of cache lines, so that the rows fall into different sets of the cache. */
#define MAX_WIDTH 4096
#define STRIDE (MAX_WIDTH + 16)
#define STAGES 7
/* Products summed in a row: a sum of such sums is off by a third of what one long sum is. */
#define RUN 128
/* Turns of a wait before it yields (some 20 us), and before an idle worker sleeps (some 60 us). */
#define SPIN_TURNS 1000
#define IDLE_TURNS 3000

typedef float vec __attribute__((vector_size(VL * 4), may_alias));
typedef int32_t ivec __attribute__((vector_size(VL * 4), may_alias));
typedef vec uvec __attribute__((aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) { return *(const uvec *)p; }
INLINE void store(float *p, vec v) { *(uvec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }
INLINE vec choose(ivec mask, vec a, vec b) { return (vec)((mask & (ivec)a) | (~mask & (ivec)b)); }
INLINE float sum(vec v) {
  float total = 0;
  for (int i = 0; i < VL; i++) total += v[i];
  return total;
}
INLINE void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* e^x for x <= 0, to 8.4e-8 of itself; e^-87, some 2e-38, below -87. NaN gives NaN. */
INLINE vec exp_nonpositive(vec x) {
  x = choose(x < splat(-87.0f), splat(-87.0f), x);
  /* Adding 1.5 * 2^23 rounds to the nearest whole number and leaves it in the low bits. */
  const vec shift = splat(12582912.0f);
  vec shifted = x * 1.44269504f + shift;
  vec n = shifted - shift;
  vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  vec y = splat(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  return y * (vec)(((ivec)shifted - (ivec)shift + 127) << 23);
}

/* x (1 + erf(x / sqrt 2)) / 2 = x - |x| tail for x > 0, -|x| tail below, where
 * tail = erfc(|x| / sqrt 2) / 2 = t P(t) e^(-x^2 / 2) / 2, t = 1 / (1 + 0.42 |x| / sqrt 2).
 * P is a weighted minimax fit: erfc is off by at most 6e-9 before rounding. Measured in fp32 for |x|
 * up to 12: GELU is off by at most 2.5e-7, and by 5e-7 of itself where |x| < 1. An infinity gives
 * NaN, as the norm behind it does. */
INLINE vec gelu(vec x) {
  vec size = (vec)((ivec)x & 0x7fffffff);
  vec z = size * 0.707106781f;
  vec t = 1.0f / (z * 0.42f + 1.0f);
  vec p = splat(0.07210729271f);
  p = p * t - 0.49059370160f;
  p = p * t + 1.08688008785f;
  p = p * t - 0.67806845903f;
  p = p * t + 0.63289338350f;
  p = p * t + 0.12783886492f;
  p = p * t + 0.24894259870f;
  vec tail = size * p * t * exp_nonpositive(z * -z) * 0.5f;
  return choose(x > 0.0f, x, (vec){0} * x) - tail;
}

typedef struct {
  const float *panels, *bias; /* [n / PANEL, rounded up][k][PANEL], [n] */
  int n, k;
} Linear;

typedef struct {
  Linear qkv, out, up, down;
  const float *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
} Layer;

typedef struct {
  _Atomic uint64_t value;
  char pad[56];
} Counter; /* a cache line of its own */

typedef struct Encoder {
  int num_layers, num_threads, num_heads, d, f;
  float eps;
  Layer *layers;
  float *arena, *x, *qkv, *attended, *sum, *mlp;
  /* Of the current call. Written after `taken` and `done`: see `work`. */
  _Atomic int rows, num_sequences;
  int offsets[MAX_ROWS + 1];
  Counter *taken; /* [stage][thread] */
  Counter *done;  /* [stage] */
  Counter epoch, wakes, sleepers;
  pthread_mutex_t call, lock;
  pthread_cond_t wake;
  int stop;
  int num_started;
  pid_t process;
  pthread_t workers[MAX_THREADS];
} Encoder;

typedef enum { PLAIN, GELU, RESIDUAL } Epilogue;

/* `m` rows times one panel; `m` and `epilogue` are constants where this is inlined. */
INLINE void block(const int m, const Epilogue epilogue, const float *a, const float *w, int k,
                  const float *bias, const float *residual, float *out, int vectors) {
  vec total[BLOCK_ROWS][2];
#pragma GCC unroll 16
  for (int i = 0; i < m; i++) total[i][0] = total[i][1] = (vec){0};
  for (int start = 0; start < k; start += RUN) {
    vec acc[BLOCK_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) acc[i][0] = acc[i][1] = (vec){0};
    int end = start + RUN < k ? start + RUN : k;
#pragma GCC unroll 2
    for (int j = start; j < end; j++) {
      /* Far enough for memory; past the panel lies the next one. */
      __builtin_prefetch((const char *)w + 4096, 0, 3);
      if (PANEL * 4 > 64) __builtin_prefetch((const char *)w + 4096 + 64, 0, 3);
      vec w0 = *(const vec *)w, w1 = *(const vec *)(w + VL);
      w += PANEL;
#pragma GCC unroll 16
      for (int i = 0; i < m; i++) {
        vec ai = splat(a[(size_t)i * STRIDE + j]);
        acc[i][0] += ai * w0;
        acc[i][1] += ai * w1;
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) {
      total[i][0] += acc[i][0];
      total[i][1] += acc[i][1];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      if (h >= vectors) break;
      size_t at = (size_t)i * STRIDE + h * VL;
      vec y = total[i][h] + load(bias + h * VL);
      if (epilogue == RESIDUAL) y += load(residual + at);
      store(out + at, epilogue == GELU ? gelu(y) : y);
    }
  }
}

/* All rows times panel `panel`, in blocks of about equal size. */
INLINE void gemm(const Epilogue epilogue, const Linear *linear, int panel, int rows,
                 const float *a, const float *residual, float *out) {
  int column = panel * PANEL, left = (linear->n - column) / VL, vectors = left < 2 ? left : 2;
  const float *w = linear->panels + (size_t)column * linear->k, *bias = linear->bias + column;
  int blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  for (int b = 0; b < blocks; b++) {
    int first = rows * b / blocks, m = rows * (b + 1) / blocks - first;
    size_t at = (size_t)first * STRIDE;
    switch (m) {
#define CASE(M)                                                                             \
  case M:                                                                                   \
    if (M <= BLOCK_ROWS)                                                                    \
      block(M <= BLOCK_ROWS ? M : 1, epilogue, a + at, w, linear->k, bias,                  \
            residual + at + column, out + at + column, vectors);                            \
    break;
      CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
      CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
    }
  }
}

static void gemm_plain(const Linear *l, int panel, int rows, const float *a, float *out) {
  gemm(PLAIN, l, panel, rows, a, a, out);
}
static void gemm_gelu(const Linear *l, int panel, int rows, const float *a, float *out) {
  gemm(GELU, l, panel, rows, a, a, out);
}
static void gemm_residual(const Linear *l, int panel, int rows, const float *a,
                          const float *residual, float *out) {
  gemm(RESIDUAL, l, panel, rows, a, residual, out);
}

/* softmax(q k^T / sqrt(H)) v for one head of one sequence. */
static void attention(const Encoder *e, int first, int length, int head) {
  enum { VECTORS = MAX_ROWS / VL };
  int h = e->d / e->num_heads;
  float scale = 1.0f / sqrtf((float)h);
  const float *q = e->qkv + (size_t)first * STRIDE + head * h, *k = q + e->d, *v = k + e->d;
  float *out = e->attended + (size_t)first * STRIDE + head * h;
  float weights[MAX_ROWS] __attribute__((aligned(64)));
  int vectors = (length + VL - 1) / VL;
  for (int i = 0; i < length; i++) {
    vec score[VECTORS];
    const float *qi = q + (size_t)i * STRIDE;
    memset(weights, 0, sizeof weights);
    for (int j = 0; j < length; j++) {
      const float *kj = k + (size_t)j * STRIDE;
      vec acc = {0};
      int c = 0;
      for (; c + VL <= h; c += VL) acc += load(qi + c) * load(kj + c);
      float dot = sum(acc);
      for (; c < h; c++) dot += qi[c] * kj[c];
      weights[j] = dot * scale;
    }
    float top = weights[0];
    for (int j = 1; j < length; j++) top = weights[j] > top ? weights[j] : top;
    for (int b = 0; b < vectors; b++) score[b] = exp_nonpositive(load(weights + b * VL) - top);
    for (int b = 0; b < vectors; b++) store(weights + b * VL, score[b]);
    float total = 0;
    for (int j = 0; j < length; j++) total += weights[j];
    float *oi = out + (size_t)i * STRIDE;
    int c = 0;
    for (; c + VL <= h; c += VL) {
      vec acc = {0};
      for (int j = 0; j < length; j++) acc += weights[j] * load(v + (size_t)j * STRIDE + c);
      store(oi + c, acc / total);
    }
    for (; c < h; c++) {
      float acc = 0;
      for (int j = 0; j < length; j++) acc += weights[j] * v[(size_t)j * STRIDE + c];
      oi[c] = acc / total;
    }
  }
}

static void layer_norm(const float *x, const float *weight, const float *bias, float eps, int d,
                       float *out) {
  vec acc = {0}, squares = {0};
  for (int c = 0; c < d; c += VL) acc += load(x + c);
  float mean = sum(acc) / d;
  for (int c = 0; c < d; c += VL) {
    vec centred = load(x + c) - mean;
    squares += centred * centred;
  }
  float scale = 1.0f / sqrtf(sum(squares) / d + eps);
  for (int c = 0; c < d; c += VL)
    store(out + c, (load(x + c) - mean) * scale * load(weight + c) + load(bias + c));
}

static int num_panels(int n) { return (n + PANEL - 1) / PANEL; }

static int num_chunks(const Encoder *e, int stage) {
  switch (stage) {
    case 0: return num_panels(3 * e->d);
    case 1: return e->num_sequences * e->num_heads;
    case 2: case 5: return num_panels(e->d);
    case 4: return num_panels(e->f);
    default: return e->rows;
  }
}

static void run_chunk(const Encoder *e, const Layer *l, int stage, int chunk) {
  size_t row = (size_t)chunk * STRIDE;
  switch (stage) {
    case 0: gemm_plain(&l->qkv, chunk, e->rows, e->x, e->qkv); break;
    case 1: {
      int s = chunk / e->num_heads, first = e->offsets[s];
      attention(e, first, e->offsets[s + 1] - first, chunk % e->num_heads);
      break;
    }
    case 2: gemm_residual(&l->out, chunk, e->rows, e->attended, e->x, e->sum); break;
    case 3:
      layer_norm(e->sum + row, l->norm1_weight, l->norm1_bias, e->eps, e->d, e->x + row);
      break;
    case 4: gemm_gelu(&l->up, chunk, e->rows, e->x, e->mlp); break;
    case 5: gemm_residual(&l->down, chunk, e->rows, e->mlp, e->x, e->sum); break;
    case 6:
      layer_norm(e->sum + row, l->norm2_weight, l->norm2_bias, e->eps, e->d, e->x + row);
      break;
  }
}

/* The next chunk of a range that ends before `end`, or -1. */
static int take(Counter *counter, uint32_t epoch, int end) {
  uint64_t seen = atomic_load(&counter->value);
  while ((uint32_t)(seen >> 32) == epoch && (int)(uint32_t)seen < end)
    if (atomic_compare_exchange_weak(&counter->value, &seen, seen + 1)) return (int)(uint32_t)seen;
  return -1;
}

/* All stages of call `epoch`, as thread `me`; a worker leaves when the call is over. */
static void work(Encoder *e, int me, uint32_t epoch) {
  for (int s = 0; s < e->num_layers * STAGES; s++) {
    int stage = s % STAGES;
    const Layer *layer = e->layers + s / STAGES;
    /* For a late worker this may be the next call's total: `taken` then has that call's epoch. */
    int total = num_chunks(e, stage), finished = 0;
    for (int i = 0; i < e->num_threads; i++) {
      int owner = (me + i) % e->num_threads, first = total * owner / e->num_threads;
      int end = total * (owner + 1) / e->num_threads - first, chunk;
      Counter *range = e->taken + (size_t)s * e->num_threads + owner;
      for (; (chunk = take(range, epoch, end)) >= 0; finished++)
        run_chunk(e, layer, stage, first + chunk);
    }
    Counter *done = e->done + s;
    if (finished) atomic_fetch_add(&done->value, (uint64_t)finished);
    for (int turn = 0;; turn++) {
      uint64_t seen = atomic_load_explicit(&done->value, memory_order_acquire);
      if ((uint32_t)(seen >> 32) != epoch) return;
      if ((int)(uint32_t)seen >= total) break;
      if (turn < SPIN_TURNS) relax();
      else sched_yield();
    }
  }
}

typedef struct {
  Encoder *encoder;
  int me;
} Start;

static void *worker(void *argument) {
  Start start = *(Start *)argument;
  Encoder *e = start.encoder;
  free(argument);
  uint64_t epoch = 0;
  for (;;) {
    uint64_t wakes = atomic_load(&e->wakes.value);
    for (int turn = 0; turn < IDLE_TURNS && atomic_load(&e->epoch.value) == epoch; turn++) relax();
    if (atomic_load(&e->epoch.value) == epoch) {
      pthread_mutex_lock(&e->lock);
      atomic_fetch_add(&e->sleepers.value, 1);
      while (!e->stop && atomic_load(&e->epoch.value) == epoch &&
             atomic_load(&e->wakes.value) == wakes)
        pthread_cond_wait(&e->wake, &e->lock);
      atomic_fetch_sub(&e->sleepers.value, 1);
      int stop = e->stop;
      pthread_mutex_unlock(&e->lock);
      if (stop) return NULL;
      continue;
    }
    epoch = atomic_load(&e->epoch.value);
    work(e, start.me, (uint32_t)epoch);
  }
}

/* Wakes sleeping workers for a call that is about to come. */
void hotbed_encoder_wake(Encoder *e) {
  atomic_fetch_add(&e->wakes.value, 1);
  if (!atomic_load(&e->sleepers.value)) return;
  pthread_mutex_lock(&e->lock);
  pthread_cond_broadcast(&e->wake);
  pthread_mutex_unlock(&e->lock);
}

/* x and out: [rows][d]; offsets: [num_sequences + 1] from 0 to rows, ascending. */
void hotbed_encoder_run(Encoder *e, const float *x, float *out, int rows, int num_sequences,
                        const int32_t *offsets) {
  pthread_mutex_lock(&e->call);
  uint64_t epoch = atomic_load(&e->epoch.value) + 1;
  for (int s = 0; s < e->num_layers * STAGES; s++) {
    for (int t = 0; t < e->num_threads; t++)
      atomic_store_explicit(&e->taken[s * e->num_threads + t].value, epoch << 32,
                            memory_order_release);
    atomic_store_explicit(&e->done[s].value, epoch << 32, memory_order_release);
  }
  atomic_store(&e->rows, rows);
  atomic_store(&e->num_sequences, num_sequences);
  memcpy(e->offsets, offsets, sizeof(int) * (size_t)(num_sequences + 1));
  for (int i = 0; i < rows; i++)
    memcpy(e->x + (size_t)i * STRIDE, x + (size_t)i * e->d, sizeof(float) * (size_t)e->d);
  atomic_store(&e->epoch.value, epoch);
  if (e->num_threads > 1) hotbed_encoder_wake(e);
  work(e, 0, (uint32_t)epoch);
  for (int i = 0; i < rows; i++)
    memcpy(out + (size_t)i * e->d, e->x + (size_t)i * STRIDE, sizeof(float) * (size_t)e->d);
  pthread_mutex_unlock(&e->call);
}

void hotbed_encoder_destroy(Encoder *e) {
  /* A forked child has no workers to join. */
  if (!e || (e->num_started && getpid() != e->process)) return;
  pthread_mutex_lock(&e->lock);
  e->stop = 1;
  pthread_cond_broadcast(&e->wake);
  pthread_mutex_unlock(&e->lock);
  for (int i = 0; i < e->num_started; i++) pthread_join(e->workers[i], NULL);
  free(e->arena);
  free(e->x);
  free(e->taken);
  free(e->done);
  free(e->layers);
  free(e);
}

static void *zeroed(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  void *memory = NULL;
  if (posix_memalign(&memory, bytes >= 1 << 21 ? 1 << 21 : 64, bytes)) return NULL;
#ifdef __linux__
  madvise(memory, bytes, MADV_HUGEPAGE); /* 4 KiB pages cost a short text some 8 % */
#endif
  return memset(memory, 0, bytes);
}

static size_t linear_size(int n, int k) { return (size_t)num_panels(n) * PANEL * (size_t)(k + 1); }

static Linear pack(float **free_space, const float *weight, const float *bias, int n, int k) {
  int columns = num_panels(n) * PANEL;
  float *panels = *free_space, *biases = panels + (size_t)columns * k;
  for (int c = 0; c < n; c++)
    for (int j = 0; j < k; j++)
      panels[(size_t)(c / PANEL * PANEL) * k + (size_t)j * PANEL + c % PANEL] =
          weight[(size_t)c * k + j];
  memcpy(biases, bias, sizeof(float) * (size_t)n);
  *free_space += linear_size(n, k);
  return (Linear){panels, biases, n, k};
}

static const float *copy(float **free_space, const float *values, int n) {
  float *to = memcpy(*free_space, values, sizeof(float) * (size_t)n);
  *free_space += (n + 15) / 16 * 16;
  return to;
}

/* Copies the weights and starts num_threads - 1 workers.
 *
 * weights: 12 pointers a layer: weight [out][in] and bias of qkv, out, norm 1, up, down, norm 2.
 * d, f: multiples of 16, at most MAX_WIDTH (3 d too). NULL: out of memory. Where a worker cannot
 * be started the others take its chunks. */
Encoder *hotbed_encoder_create(int num_layers, int num_heads, int d, int f, float eps,
                               int num_threads, const float *const *weights) {
  if (num_threads > MAX_THREADS) num_threads = MAX_THREADS;
  Encoder *e = zeroed(sizeof *e);
  if (!e) return NULL;
  e->num_layers = num_layers, e->num_threads = num_threads, e->num_heads = num_heads;
  e->d = d, e->f = f, e->eps = eps, e->process = getpid();
  pthread_mutex_init(&e->call, NULL);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->wake, NULL);
  size_t layer = linear_size(3 * d, d) + linear_size(d, d) + linear_size(f, d) + linear_size(d, f) +
                 4 * (size_t)d;
  size_t stages = (size_t)num_layers * STAGES;
  e->layers = zeroed(sizeof(Layer) * (size_t)num_layers);
  e->arena = zeroed(sizeof(float) * layer * (size_t)num_layers);
  e->x = zeroed(sizeof(float) * 5 * MAX_ROWS * STRIDE);
  e->taken = zeroed(sizeof(Counter) * stages * (size_t)num_threads);
  e->done = zeroed(sizeof(Counter) * stages);
  if (!e->layers || !e->arena || !e->x || !e->taken || !e->done) {
    hotbed_encoder_destroy(e);
    return NULL;
  }
  e->qkv = e->x + MAX_ROWS * STRIDE;
  e->attended = e->qkv + MAX_ROWS * STRIDE;
  e->sum = e->attended + MAX_ROWS * STRIDE;
  e->mlp = e->sum + MAX_ROWS * STRIDE;
  float *space = e->arena;
  for (int i = 0; i < num_layers; i++) {
    const float *const *w = weights + 12 * i;
    Layer *l = e->layers + i;
    l->qkv = pack(&space, w[0], w[1], 3 * d, d);
    l->out = pack(&space, w[2], w[3], d, d);
    l->norm1_weight = copy(&space, w[4], d);
    l->norm1_bias = copy(&space, w[5], d);
    l->up = pack(&space, w[6], w[7], f, d);
    l->down = pack(&space, w[8], w[9], d, f);
    l->norm2_weight = copy(&space, w[10], d);
    l->norm2_bias = copy(&space, w[11], d);
  }
  /* Signals are for the program's own threads. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int t = 1; t < num_threads; t++) {
    Start *start = malloc(sizeof *start);
    if (!start) break;
    *start = (Start){e, t};
    if (pthread_create(&e->workers[e->num_started], NULL, worker, start)) {
      free(start);
      break;
    }
#ifdef __linux__
    /* What a person sees in top -H; at most 15 characters. */
    pthread_setname_np(e->workers[e->num_started], "hotbed-short");
#endif
    e->num_started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return e;
}
