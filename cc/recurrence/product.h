// The product of a few rows with one panel of packed weights: a tile, whose
// sums stay in registers until the depth is through.
#ifndef TF_ECORNN_CC_RECURRENCE_PRODUCT_H_
#define TF_ECORNN_CC_RECURRENCE_PRODUCT_H_

#include "layout.h"

namespace ecornn {
namespace ECORNN_TARGET {

// sum[r][v] = over k of a[r][k] * panel[k][v]: R rows of length `depth` times a
// panel (depth, NV vectors). Each sum runs in the order of k, whatever R is.
template <class C, int R, int NV>
void TileProduct(const C* const* a, int64_t depth, const C* panel,
                 typename Simd<C>::Vector* sum) {
  using V = typename Simd<C>::Vector;
  V s[R][NV] = {};
  for (int64_t k = 0; k < depth; ++k) {
    // Broadcasts first, then one vector of weights at a time: R + 1 registers
    // beside the sums.
    V x[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) x[r] = Broadcast(a[r][k]);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const V b = Load(panel + v * Simd<C>::kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) s[r][v] = Fma(x[r], b, s[r][v]);
    }
    panel += NV * Simd<C>::kLanes;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[r * NV + v] = s[r][v];
  }
}

// The same where vector v multiplies operands of its own: a[r][k] becomes
// a[r][v * operand_stride + k].
template <class C, int R, int NV>
void TileProductPerVector(const C* const* a, int64_t operand_stride,
                          int64_t depth, const C* panel,
                          typename Simd<C>::Vector* sum) {
  using V = typename Simd<C>::Vector;
  V s[R][NV] = {};
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const V b = Load(panel + v * Simd<C>::kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        s[r][v] = Fma(Broadcast(a[r][v * operand_stride + k]), b, s[r][v]);
      }
    }
    panel += NV * Simd<C>::kLanes;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[r * NV + v] = s[r][v];
  }
}

// The tile products by their sizes: rows 1 ... kTileRows, vectors 1 ... 4.
template <class C>
struct Products {
  using V = typename Simd<C>::Vector;
  using Plain = void (*)(const C* const*, int64_t, const C*, V*);
  using PerVector = void (*)(const C* const*, int64_t, int64_t, const C*, V*);

#define ECORNN_ROW(function, R)                                \
  {&function<C, R, 1>, &function<C, R, 2>, &function<C, R, 3>, \
   &function<C, R, 4>}
#if defined(__AVX512F__)
#define ECORNN_TABLE(function)                                                \
  {ECORNN_ROW(function, 1), ECORNN_ROW(function, 2), ECORNN_ROW(function, 3), \
   ECORNN_ROW(function, 4), ECORNN_ROW(function, 5), ECORNN_ROW(function, 6)}
#else
#define ECORNN_TABLE(function) \
  {ECORNN_ROW(function, 1), ECORNN_ROW(function, 2), ECORNN_ROW(function, 3)}
#endif
  static constexpr Plain kPlain[kTileRows][kTileVectors] =
      ECORNN_TABLE(TileProduct);
  static constexpr PerVector kPerVector[kTileRows][kTileVectors] =
      ECORNN_TABLE(TileProductPerVector);
#undef ECORNN_TABLE
#undef ECORNN_ROW
};

// Calls tile(first, rows) for runs of at most kTileRows of `count` rows, as
// even as possible.
template <class F>
ECORNN_INLINE void ForEachTile(int64_t count, const F& tile) {
  const int64_t tiles = CeilDiv<int64_t>(count, kTileRows);
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = count * i / tiles;
    tile(first, static_cast<int>(count * (i + 1) / tiles - first));
  }
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_PRODUCT_H_
