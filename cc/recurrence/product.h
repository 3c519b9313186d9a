// The product of a few rows with one panel of packed weights: a tile, whose
// sums stay in registers until the depth is through.
//
// P is the type that is multiplied, by which operands and weights are kept. The
// processor's instruction may take several P of the depth at once, a group:
// two of bfloat16. A depth is then made of whole groups, zero where it ends.
#ifndef TF_ECORNN_CC_RECURRENCE_PRODUCT_H_
#define TF_ECORNN_CC_RECURRENCE_PRODUCT_H_

#include "layout.h"
#include "storage.h"

#if defined(__AMX_BF16__)
#include "matrix_registers.h"
#endif

namespace ecornn {
namespace ECORNN_TARGET {

// How P is multiplied: Groups are a vector of them, one group to a lane.
template <class P>
struct Multiply {
  using Sum = typename Simd<P>::Vector;
  using Groups = Sum;
  static constexpr int kGroup = 1;
  static constexpr int kWhole = 1;  // depths are multiples of it

  // A group in every lane.
  ECORNN_INLINE static Groups Spread(const P* group) {
    return Broadcast(*group);
  }
  ECORNN_INLINE static Groups Load(const P* groups) {
    return ECORNN_TARGET::Load(groups);
  }
  ECORNN_INLINE static Sum Add(Groups a, Groups b, Sum sum) {
    return Fma(a, b, sum);
  }
  // Packs the first `count` lanes of weights, one row of them for each k.
  template <class S>
  ECORNN_INLINE static void Pack(const S* const* rows, int count, P* to) {
    Store(to, count == Simd<P>::kLanes ? ECORNN_TARGET::Load(rows[0])
                                       : LoadFirst(rows[0], count));
  }
};

// The type that is multiplied where S is stored.
template <class S>
struct ProductTypeOf {
  using Type = ComputeType<S>;
};

#if defined(__AVX512BF16__)
template <>
struct Multiply<BFloat16> {
  using Sum = VectorF;
  using Groups = VectorI32;
  static constexpr int kGroup = 2;
#if defined(__AMX_BF16__)
  static constexpr int kWhole = matrix::kDepth;
#else
  static constexpr int kWhole = kGroup;
#endif

  ECORNN_INLINE static Groups Spread(const BFloat16* group) {
    int32_t pair;
    __builtin_memcpy(&pair, group, sizeof(pair));
    return pair - Groups{};
  }
  ECORNN_INLINE static Groups Load(const BFloat16* groups) {
    Groups v;
    __builtin_memcpy(&v, groups, sizeof(v));
    return v;
  }
  ECORNN_INLINE static Sum Add(Groups a, Groups b, Sum sum) {
    return (Sum)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
  // A row that is null is zero.
  ECORNN_INLINE static void Pack(const BFloat16* const* rows, int count,
                                 BFloat16* to) {
    const VectorF low =
        rows[0] == nullptr ? VectorF{} : LoadFirst(rows[0], count);
    const VectorF high =
        rows[1] == nullptr ? VectorF{} : LoadFirst(rows[1], count);
    const __m512i pairs = _mm512_or_si512(
        _mm512_maskz_srli_epi32(kAll32, (__m512i)low, 16), (__m512i)high);
    __builtin_memcpy((void*)to, &pairs, sizeof(pairs));
  }
};

template <>
struct ProductTypeOf<BFloat16> {
  using Type = BFloat16;
};
#endif

template <class S>
using ProductType = typename ProductTypeOf<S>::Type;

// A depth in whole groups, as many as are multiplied at once.
template <class P>
constexpr int64_t WholeGroups(int64_t depth) {
  constexpr int64_t kWhole = Multiply<P>::kWhole;
  return CeilDiv(depth, kWhole) * kWhole;
}

// Ends a row of `depth` operands with zeros up to whole groups.
template <class P>
ECORNN_INLINE void EndGroup(P* row, int64_t depth) {
  ZeroRow(row + depth, WholeGroups<P>(depth) - depth);
}

// Memory to fetch beforehand, a line with every so many groups of the depth:
// many lines at once would hold up the loads.
struct Ahead {
  const void* line;
  int64_t step;           // bytes from one line to the next
  int64_t skip_bits = 0;  // none with a k that has one of them

  ECORNN_INLINE void Fetch(int64_t k) {
    if ((k & skip_bits) != 0) return;
    PrefetchLines(static_cast<const char*>(line), 1);
    line = static_cast<const char*>(line) + step;
  }
};

// sum[r][v] = over k of a[r][k] * panel[k][v]: R rows of length `depth` times a
// panel (depth / group, NV vectors of groups). Each sum runs in the order of k,
// whatever R is.
template <class P, int R, int NV>
void TileProduct(const P* const* a, int64_t depth, const P* panel, Ahead ahead,
                 typename Multiply<P>::Sum* sum) {
  using M = Multiply<P>;
  constexpr int kGroups = Simd<ComputeType<P>>::kLanes * M::kGroup;
  typename M::Sum s[R][NV] = {};
  for (int64_t k = 0; k < depth; k += M::kGroup) {
    // Broadcasts first, then one vector of weights at a time: R + 1 registers
    // beside the sums.
    typename M::Groups x[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) x[r] = M::Spread(a[r] + k);
    ahead.Fetch(k);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const typename M::Groups b = M::Load(panel + v * kGroups);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) s[r][v] = M::Add(x[r], b, s[r][v]);
    }
    panel += NV * kGroups;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[r * NV + v] = s[r][v];
  }
}

// The same where vector v multiplies operands of its own: a[r][k] becomes
// a[r][v * operand_stride + k].
template <class P, int R, int NV>
void TileProductPerVector(const P* const* a, int64_t operand_stride,
                          int64_t depth, const P* panel,
                          typename Multiply<P>::Sum* sum) {
  using M = Multiply<P>;
  constexpr int kGroups = Simd<ComputeType<P>>::kLanes * M::kGroup;
  typename M::Sum s[R][NV] = {};
  for (int64_t k = 0; k < depth; k += M::kGroup) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const typename M::Groups b = M::Load(panel + v * kGroups);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        s[r][v] = M::Add(M::Spread(a[r] + v * operand_stride + k), b, s[r][v]);
      }
    }
    panel += NV * kGroups;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) sum[r * NV + v] = s[r][v];
  }
}

// Adds to sums[r][c] the sum over k of a[r][k] * weights[k][c], of weights
// where they lie, in rows `stride` apart: R rows, K of the depth, and all
// columns. Fetches the K rows of weights that come next. Sums are whole
// vectors.
template <class S, int R, int K>
ECORNN_INLINE void AddProductsInPlace(const ComputeType<S>* const* a, int64_t k,
                                      const S* weights, int64_t stride,
                                      int64_t columns, ComputeType<S>* sums,
                                      int64_t sums_stride) {
  using C = ComputeType<S>;
  using V = typename Simd<C>::Vector;
  constexpr int64_t kLanes = Simd<C>::kLanes;
  V x[R][K];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) x[r][i] = Broadcast(a[r][k + i]);
  }
  weights += k * stride;
  const auto add = [&](int64_t c, auto lanes) {
    V s[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) s[r] = Load(sums + r * sums_stride + c);
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) {
      const S* row = weights + i * stride + c;
      PrefetchLines(row + K * stride, 1);
      const V b = lanes.Load(row);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) s[r] = Fma(x[r][i], b, s[r]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) Store(sums + r * sums_stride + c, s[r]);
  };
  const int64_t whole = columns / kLanes * kLanes;
  for (int64_t c = 0; c < whole; c += kLanes) add(c, FullLanes{});
  const int rest = static_cast<int>(columns - whole);
  if (rest > 0) add(whole, FirstLanes{rest});
}

// The same for a whole depth. Each sum runs in the order of k, so that it has
// the bits of a packed product.
template <class S, int R>
void RowsProductInPlace(const ComputeType<S>* const* a, int64_t depth,
                        const S* weights, int64_t stride, int64_t columns,
                        ComputeType<S>* sums, int64_t sums_stride) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    AddProductsInPlace<S, R, 4>(a, k, weights, stride, columns, sums,
                                sums_stride);
  }
  for (; k < depth; ++k) {
    AddProductsInPlace<S, R, 1>(a, k, weights, stride, columns, sums,
                                sums_stride);
  }
}

// The same as Ahead: a line of each of some rows, which are not evenly spaced.
struct AheadOfRows {
  const char* line;  // of row 0
  int64_t stride;    // bytes
  const int64_t* rows;

  ECORNN_INLINE void Fetch(int64_t k) const {
    PrefetchLines(line + rows[k] * stride, 1);
  }
};

// Adds to c[r][v] the sum over k of a[k][r] * panel[k][v]: R columns of a
// matrix of groups, (depth / group, columns), times a panel. Rows of `c` are
// `c_stride` apart. Fetches a line for each k: many at once would hold up the
// loads.
template <class P, int R, int NV>
void TileProductOfColumns(const P* a, int64_t columns, int64_t depth,
                          const P* panel, ComputeType<P>* c, int64_t c_stride,
                          const AheadOfRows& ahead) {
  using M = Multiply<P>;
  constexpr int kLanes = Simd<ComputeType<P>>::kLanes;
  typename M::Sum s[R][NV];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) s[r][v] = Load(c + r * c_stride + v * kLanes);
  }
  for (int64_t k = 0; k < depth; k += M::kGroup) {
    typename M::Groups x[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) x[r] = M::Spread(a + r * M::kGroup);
    for (int j = 0; j < M::kGroup; ++j) ahead.Fetch(k + j);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const typename M::Groups b = M::Load(panel + v * kLanes * M::kGroup);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) s[r][v] = M::Add(x[r], b, s[r][v]);
    }
    a += columns * M::kGroup;
    panel += NV * kLanes * M::kGroup;
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) Store(c + r * c_stride + v * kLanes, s[r][v]);
  }
}

// Around a thread's products.
ECORNN_INLINE void BeginProducts() {
#if defined(__AMX_BF16__)
  matrix::Begin();
#endif
}
ECORNN_INLINE void EndProducts() {
#if defined(__AMX_BF16__)
  matrix::End();
#endif
}

#if !defined(__AMX_BF16__)
// The tile products by their sizes: rows 1 ... kTileRows, vectors 1 ... 4.
template <class S>
class Products {
 public:
  using P = ProductType<S>;
  using C = ComputeType<S>;
  using V = typename Multiply<P>::Sum;

  static void Plain(int rows, int vectors, const P* const* a, int64_t depth,
                    const P* panel, Ahead ahead, V* sums) {
    kPlain[rows - 1][vectors - 1](a, depth, panel, ahead, sums);
  }
  static void PerVector(int rows, int vectors, const P* const* a,
                        int64_t operand_stride, int64_t depth, const P* panel,
                        V* sums) {
    kPerVector[rows - 1][vectors - 1](a, operand_stride, depth, panel, sums);
  }
  // Single groups need no packing.
  static constexpr bool kHasInPlace = Multiply<P>::kGroup == 1;
  static void InPlace(int rows, const C* const* a, int64_t depth,
                      const S* weights, int64_t stride, int64_t columns,
                      C* sums, int64_t sums_stride) {
    kInPlace[rows - 1](a, depth, weights, stride, columns, sums, sums_stride);
  }
  static void OfColumns(int rows, int vectors, const P* a, int64_t columns,
                        int64_t depth, const P* panel, C* c, int64_t c_stride,
                        const AheadOfRows& ahead) {
    kOfColumns[rows - 1][vectors - 1](a, columns, depth, panel, c, c_stride,
                                      ahead);
  }

 private:
#define ECORNN_ROW(function, T, R)                             \
  {&function<T, R, 1>, &function<T, R, 2>, &function<T, R, 3>, \
   &function<T, R, 4>}
#if defined(__AVX512F__)
#define ECORNN_TABLE(function, T)                          \
  {ECORNN_ROW(function, T, 1), ECORNN_ROW(function, T, 2), \
   ECORNN_ROW(function, T, 3), ECORNN_ROW(function, T, 4), \
   ECORNN_ROW(function, T, 5), ECORNN_ROW(function, T, 6)}
#else
#define ECORNN_TABLE(function, T)                          \
  {ECORNN_ROW(function, T, 1), ECORNN_ROW(function, T, 2), \
   ECORNN_ROW(function, T, 3)}
#endif
  static constexpr decltype(&TileProduct<P, 1, 1>)
      kPlain[kTileRows][kTileVectors] = ECORNN_TABLE(TileProduct, P);
  static constexpr decltype(&TileProductPerVector<P, 1, 1>)
      kPerVector[kTileRows][kTileVectors] =
          ECORNN_TABLE(TileProductPerVector, P);
  static constexpr decltype(&RowsProductInPlace<S, 1>) kInPlace[kTileRows] = {
      &RowsProductInPlace<S, 1>, &RowsProductInPlace<S, 2>,
      &RowsProductInPlace<S, 3>,
#if defined(__AVX512F__)
      &RowsProductInPlace<S, 4>, &RowsProductInPlace<S, 5>,
      &RowsProductInPlace<S, 6>,
#endif
  };
  static constexpr decltype(&TileProductOfColumns<P, 1, 1>)
      kOfColumns[kTileRows][kTileVectors] =
          ECORNN_TABLE(TileProductOfColumns, P);
#undef ECORNN_TABLE
#undef ECORNN_ROW
};
#endif

// One of `count` tiles that take the same panel.
struct Turn {
  int64_t index, count;
};

// Calls tile(turn, first, rows) for runs, from row `first` on, of at most
// kTileRows of `count` rows: as even as possible, or where matrix registers
// want whole ones all but the last of kTileRows.
template <class F>
ECORNN_INLINE void ForEachTile(int64_t count, const F& tile) {
  const int64_t tiles = CeilDiv<int64_t>(count, kTileRows);
  for (int64_t i = 0; i < tiles; ++i) {
#if defined(__AMX_BF16__)
    const int64_t first = i * kTileRows;
    const int64_t end = MinOf(first + kTileRows, count);
#else
    const int64_t first = count * i / tiles;
    const int64_t end = count * (i + 1) / tiles;
#endif
    tile(Turn{i, tiles}, first, static_cast<int>(end - first));
  }
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#if defined(__AMX_BF16__)
#include "matrix_products.h"
#endif

#endif  // TF_ECORNN_CC_RECURRENCE_PRODUCT_H_
