// Times the CPU engine's two passes on one thread, next to the processor's own
// multiply-add peak: what the constants in recurrence/layout.h were found with.
//
//   engine_speed CELL DTYPE U,B,T[,F] ...
//
// CELL is lstm, gru or gru_reset_before, DTYPE float, double, half or bfloat16.
// With F the input's product is inside the passes. The third time is that of
// the summed products: the gradients of the recurrent kernel and, with F, of
// the kernel. TF_ECORNN_ISA chooses the instruction set. Every call has other
// sequence arrays than the one before, as in a training step, so they come from
// memory. Times are the thread's own.
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../kernels/flush_denormals.h"
#include "../recurrence/engine.h"
#include "../recurrence/solo_team.h"

namespace ecornn {
namespace {

constexpr int kRounds = 15;
// Sequence arrays of this many bytes in turn are more than the caches keep.
constexpr double kBytesInTurn = 128e6;

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Set(float x, float* to) { *to = x; }
void Set(float x, double* to) { *to = x; }
void Set(float x, BFloat16* to) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  to->bits = static_cast<uint16_t>(bits >> 16);
}
// Numbers from 2^-4 to 2^-3 in size, by their bits.
void Set(float x, Half* to) {
  to->bits = static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | 0x2c00);
}

template <class S>
class Array {
 public:
  explicit Array(int64_t count) : data_(Allocate(count * sizeof(S))) {
    for (int64_t i = 0; i < count; ++i) {
      Set(float(std::rand()) / RAND_MAX * 0.2f - 0.1f, &data_.get()[i]);
    }
  }
  S* get() const { return data_.get(); }

 private:
  static S* Allocate(size_t bytes) {
    return static_cast<S*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  }
  struct Free {
    void operator()(S* p) const { std::free(p); }
  };
  std::unique_ptr<S, Free> data_;
};

struct Shape {
  int64_t units, batch, steps, features;
};

// What a step of training holds for a sequence.
template <class S>
struct Sequences {
  using C = ComputeType<S>;
  Sequences(const Shape& s, int gates)
      : input(s.batch * s.steps * std::max(s.features, gates * s.units)),
        gates(s.batch * s.steps * gates * s.units),
        previous_h(s.batch * s.steps * s.units),
        candidate(s.batch * s.steps * s.units),
        grad_candidate(s.batch * s.steps * s.units),
        previous_c(s.batch * s.steps * s.units) {}
  static double Bytes(const Shape& s, int gates) {
    return double(s.batch) * s.steps * s.units * sizeof(S) * (2 * gates + 5);
  }
  Array<S> input, gates, previous_h, candidate, grad_candidate;
  Array<C> previous_c;
};

template <class S>
void TimeShape(CellKind cell, const Shape& s) {
  const int gates = cell == CellKind::kLstm ? 4 : 3;
  const int64_t state = s.batch * s.units;
  const Array<S> kernel(s.features * gates * s.units);
  const Array<S> recurrent_kernel(s.units * gates * s.units);
  const Array<S> bias(gates * s.units), initial(state), grad(state);
  const Array<S> h(state), last(state), c(state), grad_bias(gates * s.units);
  const Array<S> grad_recurrent_kernel(s.units * gates * s.units);
  const Array<S> grad_kernel(s.features * gates * s.units);
  std::vector<std::unique_ptr<Sequences<S>>> turns;
  const double copies = kBytesInTurn / Sequences<S>::Bytes(s, gates);
  for (int i = 0; i < 1 + std::min(copies, 64.0); ++i) {
    turns.push_back(std::make_unique<Sequences<S>>(s, gates));
  }

  ForwardArgs<S> f = {};
  f.sequence = {cell,  s.batch, s.steps,           s.units,
                false, false,   Activation::kTanh, Activation::kSigmoid};
  f.recurrent_kernel = recurrent_kernel.get();
  if (s.features > 0) f.kernel = kernel.get();
  f.features = s.features;
  f.bias = bias.get();
  if (cell == CellKind::kGruResetAfter) f.recurrent_bias = bias.get();
  f.initial_h = f.initial_c = initial.get();
  f.last_output = last.get();
  f.final_h = h.get();
  f.final_c = c.get();
  BackwardArgs<S> b = {};
  b.sequence = f.sequence;
  b.recurrent_kernel = recurrent_kernel.get();
  b.grad_last_output = b.grad_final_h = b.grad_final_c = grad.get();
  b.grad_initial_h = h.get();
  b.grad_initial_c = c.get();
  b.grad_bias = grad_bias.get();
  SummedProductsArgs<S> p = {};
  p.batch = s.batch;
  p.steps = s.steps;
  p.width = p.count = gates * s.units;
  p.left_count = s.features > 0 ? 2 : 1;
  p.lefts[0] = {nullptr, s.units, grad_recurrent_kernel.get()};
  p.lefts[1] = {nullptr, s.features, grad_kernel.get()};

  SoloTeam team;
  const Engine<S>& engine = EngineFor<S>(ActiveIsa());
  const size_t bytes =
      std::max({engine.forward_scratch(f, 1), engine.backward_scratch(b, 1),
                engine.summed_products_scratch(p, 1)});
  const Array<float> scratch(bytes / sizeof(float) + 1);
  std::vector<double> forward, backward, products;
  for (int round = 0; round < kRounds; ++round) {
    const Sequences<S>& q = *turns[round % turns.size()];
    (s.features > 0 ? f.x : f.gates_x) = q.input.get();
    f.gates = q.gates.get();
    f.previous_h = q.previous_h.get();
    f.previous_c = q.previous_c.get();
    f.candidate = q.candidate.get();
    double start = Seconds();
    engine.forward(f, scratch.get(), team);
    forward.push_back(Seconds() - start);
    b.gates = b.grad_gates = q.gates.get();
    b.previous_h = q.previous_h.get();
    b.previous_c = q.previous_c.get();
    b.candidate = q.candidate.get();
    b.grad_candidate = q.grad_candidate.get();
    start = Seconds();
    engine.backward(b, scratch.get(), team);
    backward.push_back(Seconds() - start);
    p.right = b.grad_gates;
    p.lefts[0].sequence = q.previous_h.get();
    p.lefts[1].sequence = q.input.get();
    start = Seconds();
    engine.summed_products(p, scratch.get(), team);
    products.push_back(Seconds() - start);
  }
  const double rows = 2e-9 * s.batch * s.steps * gates * s.units;
  std::printf(
      "U=%-5ld B=%-5ld T=%-5ld F=%-3ld  forward %8.3f ms %6.1f GF/s   "
      "backward %8.3f ms %6.1f GF/s   products %8.3f ms %6.1f GF/s\n",
      long(s.units), long(s.batch), long(s.steps), long(s.features),
      Median(forward) * 1e3, rows * (s.units + s.features) / Median(forward),
      Median(backward) * 1e3, rows * s.units / Median(backward),
      Median(products) * 1e3, rows * (s.units + s.features) / Median(products));
}

#if defined(__x86_64__)
// Float multiply-adds on registers alone, in GF/s: a dozen independent chains,
// which is more than the units' latency asks for.
constexpr int kChains = 12;
constexpr int kTurns = 4000000;
#define ECORNN_PEAK(name, isa, Vector, fma, set)                            \
  __attribute__((target(isa))) double name() {                              \
    const Vector x = set(0.999f);                                           \
    Vector a = x, b = x, c = x, d = x, e = x, f = x;                        \
    Vector g = x, h = x, i = x, j = x, k = x, l = x;                        \
    const double start = Seconds();                                         \
    for (int turn = 0; turn < kTurns; ++turn) {                             \
      a = fma(a, x, x), b = fma(b, x, x), c = fma(c, x, x);                 \
      d = fma(d, x, x), e = fma(e, x, x), f = fma(f, x, x);                 \
      g = fma(g, x, x), h = fma(h, x, x), i = fma(i, x, x);                 \
      j = fma(j, x, x), k = fma(k, x, x), l = fma(l, x, x);                 \
      asm volatile(""                                                       \
                   : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f),  \
                     "+v"(g), "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l)); \
    }                                                                       \
    const double seconds = Seconds() - start;                               \
    return 2e-9 * kTurns * kChains * (sizeof(Vector) / 4) / seconds;        \
  }
ECORNN_PEAK(Peak512, "avx512f", __m512, _mm512_fmadd_ps, _mm512_set1_ps)
ECORNN_PEAK(Peak256, "avx2,fma", __m256, _mm256_fmadd_ps, _mm256_set1_ps)
#undef ECORNN_PEAK
#endif

void PrintPeak() {
#if defined(__x86_64__)
  double (*peak)() = nullptr;
  if (IsaAvailable(Isa::kAvx2)) peak = Peak256;
  if (IsaAvailable(Isa::kAvx512)) peak = Peak512;
  if (peak == nullptr) return;
  double best = 0;
  for (int i = 0; i < 5; ++i) best = std::max(best, peak());
  std::printf("this processor's float multiply-adds: %.1f GF/s\n", best);
#endif
}

int Run(int count, char** words) {
  const char* const kCells[] = {"lstm", "gru_reset_before", "gru"};
  const CellKind kKinds[] = {CellKind::kLstm, CellKind::kGru,
                             CellKind::kGruResetAfter};
  const auto cell = std::find_if(kCells, kCells + 3, [&](const char* name) {
    return count > 3 && std::strcmp(name, words[1]) == 0;
  });
  if (cell == kCells + 3) {
    std::fprintf(stderr,
                 "engine_speed lstm|gru|gru_reset_before "
                 "float|double|half|bfloat16 U,B,T[,F] ...\n");
    return 2;
  }
  std::printf("%s, %s, %s\n", *cell, words[2], IsaName(ActiveIsa()));
  PrintPeak();
  for (int i = 3; i < count; ++i) {
    long sizes[4] = {0, 0, 0, 0};
    if (std::sscanf(words[i], "%ld,%ld,%ld,%ld", &sizes[0], &sizes[1],
                    &sizes[2], &sizes[3]) < 3) {
      std::fprintf(stderr, "%s is no U,B,T[,F]\n", words[i]);
      return 2;
    }
    const Shape shape = {sizes[0], sizes[1], sizes[2], sizes[3]};
    const CellKind kind = kKinds[cell - kCells];
    if (std::strcmp(words[2], "double") == 0) {
      TimeShape<double>(kind, shape);
    } else if (std::strcmp(words[2], "half") == 0) {
      TimeShape<Half>(kind, shape);
    } else if (std::strcmp(words[2], "bfloat16") == 0) {
      TimeShape<BFloat16>(kind, shape);
    } else {
      TimeShape<float>(kind, shape);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ecornn

int main(int count, char** words) {
  const ecornn::FlushDenormals flush;
  return ecornn::Run(count, words);
}
