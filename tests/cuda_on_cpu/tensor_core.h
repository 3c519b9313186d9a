// The part of nvcuda::wmma that the kernels use. A fragment is spread over its
// warp's lanes, here in an order of our own: which lane holds what is not for
// kernels to know. Each call is made by all lanes together with equal
// arguments, and checked for it.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "numbers.h"
#include "pointer.h"
#include "synchronise.h"

namespace ecornn {
namespace emulation {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

// What an element type is held as, and the value of it. A fragment starts as a
// NaN of our own, by which a product knows that nobody loaded it.
template <class T>
struct Element;
template <>
struct Element<HalfElement> {
  using Held = HalfElement;
  static constexpr HalfElement kUnset{0x7d5a};
  static bool IsUnset(HalfElement x) { return x.bits == kUnset.bits; }
  static float Value(HalfElement x) { return FloatOfHalf(x.bits); }
};
template <>
struct Element<BFloat16Element> {
  using Held = BFloat16Element;
  static constexpr BFloat16Element kUnset{0x7fa5};
  static bool IsUnset(BFloat16Element x) { return x.bits == kUnset.bits; }
  static float Value(BFloat16Element x) { return FloatOfBFloat16(x.bits); }
};
template <>
struct Element<float> {
  using Held = float;
  static constexpr uint32_t kUnsetBits = 0x7fb0dead;
  // Arithmetic makes a quiet NaN of it and keeps the rest.
  static bool IsUnset(float x) {
    return (BitsOf(x) | 0x400000) == (kUnsetBits | 0x400000);
  }
  static float Value(float x) { return x; }
};
template <>
struct Element<precision::tf32> : Element<float> {
  static float Value(float x) {
    if (!IsTensorFloat32(x)) {
      Fail("multiplies %.9g in tensor cores, which is not rounded to TF32", x);
    }
    return x;
  }
};

constexpr bool IsShape(int m, int n, int k, bool tf32) {
  return tf32 ? m == 16 && n == 16 && k == 8
              : k == 16 && m * n == 256 && (m == 8 || m == 16 || m == 32);
}

template <class Use, int kM, int kN, int kK>
inline constexpr int kFragmentRows =
    std::is_same<Use, matrix_b>::value ? kK : kM;
template <class Use, int kM, int kN, int kK>
inline constexpr int kFragmentColumns =
    std::is_same<Use, matrix_a>::value ? kK : kN;

template <class Use, int kM, int kN, int kK, class T, class Layout = void>
class fragment {
 public:
  using Held = typename Element<T>::Held;
  static constexpr int kRows = kFragmentRows<Use, kM, kN, kK>;
  static constexpr int kColumns = kFragmentColumns<Use, kM, kN, kK>;
  static constexpr int num_elements = kRows * kColumns / kWarpLanes;

  fragment() {
    for (Held& element : x) {
      if constexpr (std::is_same<Held, float>::value) {
        memcpy(&element, &Element<float>::kUnsetBits, sizeof(element));
      } else {
        element = Element<T>::kUnset;
      }
    }
  }

  Held x[num_elements];
};

template <class F>
inline constexpr bool kIsRowMajor = false;
template <class U, int kM, int kN, int kK, class T>
inline constexpr bool kIsRowMajor<fragment<U, kM, kN, kK, T, row_major>> = true;

// Element (row, column) of all lanes' fragments: rows one after another over
// the lanes.
template <class F>
auto& At(F* const* lanes, int row, int column) {
  const int index = row * F::kColumns + column;
  return lanes[index / F::num_elements]->x[index % F::num_elements];
}

// A matrix in memory, by its lines: rows, or columns.
struct Lines {
  AnyPointer begin;
  int64_t stride;  // in elements
  bool rows;
  int element_bytes;

  bool operator==(const Lines& other) const {
    return begin == other.begin && stride == other.stride && rows == other.rows;
  }
  void Check(const char* name) const {
    CheckAligned(begin, 32, name);
    if (stride * element_bytes % 16 == 0) return;
    Fail("calls %s with lines %lld elements apart, not a multiple of 16 bytes",
         name, static_cast<long long>(stride));
  }
  unsigned char* Line(int i) const {
    return begin.address() + i * stride * element_bytes;
  }
};

template <class F>
struct Transfer : Collective {
  Lines lines;
  F* part;

  static void Gather(Collective* const* calls, F** lanes) {
    const auto* first = static_cast<const Transfer*>(calls[0]);
    for (int i = 0; i < kWarpLanes; ++i) {
      const auto* call = static_cast<const Transfer*>(calls[i]);
      if (!(call->lines == first->lines)) {
        Fail("calls %s with other arguments than other lanes of its warp",
             call->name);
      }
      lanes[i] = call->part;
    }
    first->lines.Check(first->name);
  }
  static int Count(bool rows) { return rows ? F::kRows : F::kColumns; }
  static int Length(bool rows) { return rows ? F::kColumns : F::kRows; }
};

template <class F>
void RunLoad(Collective* const* calls) {
  using Held = typename F::Held;
  F* lanes[kWarpLanes];
  Transfer<F>::Gather(calls, lanes);
  const Lines& lines = static_cast<const Transfer<F>*>(calls[0])->lines;
  const int length = Transfer<F>::Length(lines.rows);
  for (int i = 0; i < Transfer<F>::Count(lines.rows); ++i) {
    NoteRead(lines.begin.extent(), lines.Line(i), length * sizeof(Held),
             sizeof(Held), WholeWarp(), Through::kOwnCache);
    const auto* line = reinterpret_cast<const Held*>(lines.Line(i));
    for (int j = 0; j < length; ++j) {
      (lines.rows ? At(lanes, i, j) : At(lanes, j, i)) = line[j];
    }
  }
}

template <class F>
void RunStore(Collective* const* calls) {
  using Held = typename F::Held;
  F* lanes[kWarpLanes];
  Transfer<F>::Gather(calls, lanes);
  const Lines& lines = static_cast<const Transfer<F>*>(calls[0])->lines;
  const int length = Transfer<F>::Length(lines.rows);
  for (int i = 0; i < Transfer<F>::Count(lines.rows); ++i) {
    NoteWrite(lines.begin.extent(), lines.Line(i), length * sizeof(Held),
              sizeof(Held), WholeWarp());
    auto* line = reinterpret_cast<Held*>(lines.Line(i));
    for (int j = 0; j < length; ++j) {
      line[j] = lines.rows ? At(lanes, i, j) : At(lanes, j, i);
    }
  }
}

template <class F, class T>
void Move(const char* name, void (*run)(Collective* const*), F& part,
          const Pointer<T>& memory, int64_t stride, bool rows) {
  static_assert(sizeof(T) == sizeof(typename F::Held), "the fragment's type");
  Transfer<F> call;
  call.name = name;
  call.run = run;
  call.lines = {memory, stride, rows, static_cast<int>(sizeof(T))};
  call.part = &part;
  RunCollective(&call);
}

template <class U, int kM, int kN, int kK, class T, class Layout>
void load_matrix_sync(fragment<U, kM, kN, kK, T, Layout>& a,
                      Pointer<const typename Element<T>::Held> from,
                      unsigned stride) {
  using F = fragment<U, kM, kN, kK, T, Layout>;
  static_assert(!std::is_void<Layout>::value, "an operand has a layout");
  Move("load_matrix_sync", RunLoad<F>, a, from, stride, kIsRowMajor<F>);
}
template <int kM, int kN, int kK, class T>
void load_matrix_sync(fragment<accumulator, kM, kN, kK, T>& c,
                      Pointer<const T> from, unsigned stride, layout_t layout) {
  using F = fragment<accumulator, kM, kN, kK, T>;
  Move("load_matrix_sync", RunLoad<F>, c, from, stride,
       layout == mem_row_major);
}
template <int kM, int kN, int kK, class T>
void store_matrix_sync(Pointer<T> to,
                       const fragment<accumulator, kM, kN, kK, T>& c,
                       unsigned stride, layout_t layout) {
  using F = const fragment<accumulator, kM, kN, kK, T>;
  Move("store_matrix_sync", RunStore<F>, c, to, stride,
       layout == mem_row_major);
}

template <class U, int kM, int kN, int kK, class T, class Layout, class V>
void fill_fragment(fragment<U, kM, kN, kK, T, Layout>& a, const V& value) {
  for (auto& element : a.x) element = value;
}

void CheckTensorCore(bool ampere);

template <class D, class A, class B, class C>
struct Product : Collective {
  D* d;
  const A* a;
  const B* b;
  const C* c;
};

template <class T, class F>
void Values(F* const* lanes, float* values) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < F::num_elements; ++i) {
      const auto element = lanes[lane]->x[i];
      if (Element<T>::IsUnset(element)) {
        Fail("multiplies a fragment that nobody loaded or filled");
      }
      values[lane * F::num_elements + i] = Element<T>::Value(element);
    }
  }
}

template <int kM, int kN, int kK, class T, class D, class A, class B, class C>
void RunProduct(Collective* const* calls) {
  D* d[kWarpLanes];
  const A* a[kWarpLanes];
  const B* b[kWarpLanes];
  const C* c[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const auto* call = static_cast<const Product<D, A, B, C>*>(calls[i]);
    d[i] = call->d;
    a[i] = call->a;
    b[i] = call->b;
    c[i] = call->c;
  }
  float left[kM * kK];
  float right[kK * kN];
  float sums[kM * kN];
  Values<T>(a, left);
  Values<T>(b, right);
  Values<float>(c, sums);
  for (int m = 0; m < kM; ++m) {
    for (int k = 0; k < kK; ++k) {
      const float factor = left[m * kK + k];
      for (int n = 0; n < kN; ++n) {
        sums[m * kN + n] += factor * right[k * kN + n];
      }
    }
  }
  for (int i = 0; i < kM * kN; ++i) At(d, i / kN, i % kN) = sums[i];
}

template <int kM, int kN, int kK, class T, class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, kM, kN, kK, float>& d,
              const fragment<matrix_a, kM, kN, kK, T, LayoutA>& a,
              const fragment<matrix_b, kM, kN, kK, T, LayoutB>& b,
              const fragment<accumulator, kM, kN, kK, float>& c) {
  constexpr bool kTensorFloat = std::is_same<T, precision::tf32>::value;
  static_assert(IsShape(kM, kN, kK, kTensorFloat), "a shape that CUDA has");
  CheckTensorCore(!std::is_same<T, HalfElement>::value);
  using D = fragment<accumulator, kM, kN, kK, float>;
  using A = fragment<matrix_a, kM, kN, kK, T, LayoutA>;
  using B = fragment<matrix_b, kM, kN, kK, T, LayoutB>;
  Product<D, A, B, D> call;
  call.name = "mma_sync";
  call.run = RunProduct<kM, kN, kK, T, D, A, B, D>;
  call.d = &d;
  call.a = &a;
  call.b = &b;
  call.c = &c;
  RunCollective(&call);
}

}  // namespace wmma
}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_
