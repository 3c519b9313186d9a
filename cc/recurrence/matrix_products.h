// The tile products by matrix registers; see product.h for what they are.
#ifndef TF_ECORNN_CC_RECURRENCE_MATRIX_PRODUCTS_H_
#define TF_ECORNN_CC_RECURRENCE_MATRIX_PRODUCTS_H_

#include "matrix_registers.h"
#include "product.h"

namespace ecornn {
namespace ECORNN_TARGET {

// Writes sums of 16 or 32 rows, whatever `rows` is.
template <class S>
class Products {
 public:
  using P = BFloat16;
  using V = VectorF;
  static constexpr bool kHasInPlace = false;

  static void Plain(int rows, int vectors, const P* const* a, int64_t depth,
                    const P* panel, Ahead ahead, V* sums) {
    ByVectors(vectors, [&](auto count) {
      PlainOf<count.value>(rows, a, depth, panel, ahead, sums);
    });
  }

  static void PerVector(int rows, int vectors, const P* const* a,
                        int64_t operand_stride, int64_t depth, const P* panel,
                        V* sums) {
    const auto no_ahead = [](int64_t) {};
    const int64_t stride = vectors * sizeof(V);
    for (int first = 0; first < rows; first += matrix::kRows) {
      const int count = MinOf(rows - first, matrix::kRows);
      for (int v = 0; v < vectors; ++v) {
        matrix::Operands operands(a + first, count, v * operand_stride);
        matrix::MultiplyRows<1, false>(
            operands, depth, {panel + v * kVectorOfPairs, stride},
            {SumsOf(sums, first * vectors + v), stride}, no_ahead);
      }
    }
  }

  // Columns lie as in matrix::Columns; up to 15 behind the last one are read.
  static void OfColumns(int rows, int vectors, const P* a, int64_t columns,
                        int64_t depth, const P* panel, float* c,
                        int64_t c_stride, const AheadOfRows& ahead) {
    ByVectors(vectors, [&](auto count) {
      ColumnsOf<count.value>(rows, {a, columns}, depth, panel, c, c_stride,
                             ahead);
    });
  }

 private:
  static constexpr int kVectorOfPairs = sizeof(V) / sizeof(P);
  static constexpr int kLanes = Simd<float>::kLanes;

  template <int N>
  struct Count {
    static constexpr int value = N;
  };
  template <class F>
  ECORNN_INLINE static void ByVectors(int vectors, const F& use) {
    switch (vectors) {
      case 1:
        return use(Count<1>{});
      case 2:
        return use(Count<2>{});
      case 3:
        return use(Count<3>{});
      default:
        return use(Count<4>{});
    }
  }

  ECORNN_INLINE static float* SumsOf(V* sums, int64_t i) {
    return reinterpret_cast<float*>(sums + i);
  }

  template <int NV>
  static void PlainOf(int rows, const P* const* a, int64_t depth,
                      const P* panel, Ahead ahead, V* sums) {
    constexpr int64_t kStride = NV * sizeof(V);
    matrix::Operands first(a, MinOf(rows, matrix::kRows), 0);
    if (rows <= matrix::kRows) {
      matrix::MultiplyRows<NV, false>(
          first, depth, {panel, kStride}, {SumsOf(sums, 0), kStride},
          [&](int64_t k) { Fetch(&ahead, k, k + matrix::kDepth); });
      return;
    }
    matrix::Operands more(a + matrix::kRows, rows - matrix::kRows, 0);
    // Two vectors at a time; what is fetched is shared out among them.
    constexpr int kPart = NV > 2 ? matrix::kDepth / 2 : matrix::kDepth;
    matrix::MultiplyTwiceTheRows<MinOf(NV, 2)>(
        first, more, depth, {panel, kStride}, {SumsOf(sums, 0), kStride},
        [&](int64_t k) { Fetch(&ahead, k, k + kPart); });
    if constexpr (NV > 2) {
      matrix::MultiplyTwiceTheRows<NV - 2>(
          first, more, depth, {panel + 2 * kVectorOfPairs, kStride},
          {SumsOf(sums, 2), kStride},
          [&](int64_t k) { Fetch(&ahead, k + kPart, k + matrix::kDepth); });
    }
  }

  // What there is to fetch with the pairs of [begin, end).
  ECORNN_INLINE static void Fetch(Ahead* ahead, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k += 2) ahead->Fetch(k);
  }

  template <int NV>
  static void ColumnsOf(int count, matrix::Columns a, int64_t depth,
                        const P* panel, float* c, int64_t c_stride,
                        const AheadOfRows& ahead) {
    constexpr int64_t kStride = NV * sizeof(V);
    const int64_t stride = c_stride * sizeof(float);
    const auto fetch = [&](int64_t k) {
      for (int64_t i = k; i < k + matrix::kDepth; ++i) ahead.Fetch(i);
    };
    for (; count >= matrix::kRows; count -= matrix::kRows) {
      matrix::MultiplyRows<NV, true>(a, depth, {panel, kStride}, {c, stride},
                                     fetch);
      a.first += matrix::kRows * matrix::kDepth;
      c += matrix::kRows * c_stride;
    }
    if (count == 0) return;
    V part[matrix::kRows * NV];
    matrix::MultiplyRows<NV, false>(a, depth, {panel, kStride},
                                    {SumsOf(part, 0), kStride}, fetch);
    for (int r = 0; r < count; ++r) {
      for (int v = 0; v < NV; ++v) {
        float* sum = c + r * c_stride + v * kLanes;
        Store(sum, Load(sum) + part[r * NV + v]);
      }
    }
  }
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_MATRIX_PRODUCTS_H_
