// One warp's product of a tile of weights with a tile of rows:
//
//   sums (units, rows) += weights (units, 16) * rows (rows, 16)^T
//
// in the tensor cores where they take the type, else by multiply-adds. A tile
// has 256 sums, one for each thread of a block, and is 16 deep: a chunk.
//
// Each tile type says: S what the arrays hold, C what is computed in, Operand
// what is multiplied; kUnits and kRows; kProductWarps, among how many of a
// block's warps a product is split; kKept, how many chunks of weights a warp
// keeps in registers; kAhead, how many chunks of rows it fetches at once
// (32 registers' worth); kAvailable, whether the target has it; kPartStride,
// how far apart the rows of stored sums lie; kWeightPadding, how many weights
// beyond a tile's own are read.
#ifndef TF_ECORNN_CUDA_TILE_H_
#define TF_ECORNN_CUDA_TILE_H_

#include <string.h>

#include "block_shape.h"
#include "scalar_math.h"

namespace ecornn {
namespace cuda {

template <class Operand>
inline constexpr int kStageStride = StageStride(sizeof(Operand));

// --- Multiply-adds ------------------------------------------------------

// 8 units by 32 rows. A lane has units l and l + 4, rows r, r + 8, r + 16 and
// r + 24.
template <class Storage, class Computed>
struct MultiplyAddTile {
  using S = Storage;
  using C = Computed;
  using Operand = S;
  static constexpr int kUnits = 8;
  static constexpr int kRows = 32;
  static constexpr int kKept = 0;
  static constexpr int kAhead = 8 / static_cast<int>(sizeof(S));
  // The sums of eight warps in float64 would not fit the smaller GPUs.
  static constexpr int kProductWarps = sizeof(C) == 8 ? kWarps / 2 : kWarps;
  static constexpr bool kAvailable = true;
  static constexpr int kPartStride = kUnits;
  static constexpr int kWeightPadding = 0;
  static constexpr int kLaneUnits = 2;
  static constexpr int kLaneRows = 4;

  struct Weights {
    ECORNN_DEVICE void Load(Pointer<const Operand> from) { data = from; }
    Pointer<const Operand> data;
  };
  struct Rows {
    ECORNN_DEVICE void Load(Pointer<const Operand> from) { data = from; }
    Pointer<const Operand> data;
  };

  struct Sums {
    ECORNN_DEVICE void Clear() {
      ECORNN_UNROLL for (int i = 0; i < kLaneUnits * kLaneRows; ++i) {
        values[i] = C(0);
      }
    }
    ECORNN_DEVICE void Add(const Sums& other) {
      ECORNN_UNROLL for (int i = 0; i < kLaneUnits * kLaneRows; ++i) {
        values[i] += other.values[i];
      }
    }
    // To (rows, units).
    ECORNN_DEVICE void Store(Pointer<C> to) const {
      ECORNN_UNROLL for (int i = 0; i < kLaneUnits; ++i) {
        ECORNN_UNROLL for (int j = 0; j < kLaneRows; ++j) {
          to[LaneRow(j) * kUnits + LaneUnit(i)] = values[i * kLaneRows + j];
        }
      }
    }
    C values[kLaneUnits * kLaneRows];
  };

  ECORNN_DEVICE static void MultiplyAdd(Sums& sums, const Weights& weights,
                                        const Rows& rows) {
    constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Operand));
    ECORNN_NO_UNROLL for (int k = 0; k < kChunkDepth; k += kWidth) {
      Piece<kWidth> w[kLaneUnits];
      Piece<kWidth> r[kLaneRows];
      ECORNN_UNROLL for (int i = 0; i < kLaneUnits; ++i) {
        w[i].Load(weights.data + LaneUnit(i) * kChunkDepth + k);
      }
      ECORNN_UNROLL for (int j = 0; j < kLaneRows; ++j) {
        r[j].Load(rows.data + LaneRow(j) * kStageStride<Operand> + k);
      }
      ECORNN_UNROLL for (int e = 0; e < kWidth; ++e) {
        ECORNN_UNROLL for (int i = 0; i < kLaneUnits; ++i) {
          ECORNN_UNROLL for (int j = 0; j < kLaneRows; ++j) {
            C& sum = sums.values[i * kLaneRows + j];
            sum = Fma(w[i].values[e], r[j].values[e], sum);
          }
        }
      }
    }
  }

  ECORNN_DEVICE static Operand ToOperand(C x) { return Narrow<S>(x); }

 private:
  // One vector's numbers.
  template <int kWidth>
  struct Piece {
    ECORNN_DEVICE void Load(Pointer<const Operand> from) {
      const Vector16 vector = LoadVector(from);
      Operand narrow[kWidth];
      memcpy(narrow, &vector, sizeof(narrow));
      ECORNN_UNROLL for (int e = 0; e < kWidth; ++e) {
        values[e] = Widen(narrow[e]);
      }
    }
    C values[kWidth];
  };

  ECORNN_DEVICE static int LaneUnit(int i) { return ThreadIndex() % 4 + 4 * i; }
  ECORNN_DEVICE static int LaneRow(int j) {
    return ThreadIndex() % kWarpLanes / 4 + 8 * j;
  }
};

// --- Tensor cores -------------------------------------------------------

// 16-bit numbers, sums in float32: 8 units by 32 rows.
template <class Storage, class Element>
struct NarrowTensorTile {
  using S = Storage;
  using C = float;
  using Operand = S;
  static constexpr int kUnits = 8;
  static constexpr int kRows = 32;
  static constexpr int kKept = 2;
  static constexpr int kAhead = 4;
  static constexpr int kProductWarps = kWarps;
  static constexpr bool kAvailable = true;
  static constexpr int kPartStride = kUnits;
  static constexpr int kWeightPadding = 0;

  struct Weights {
    ECORNN_DEVICE void Load(Pointer<const Operand> from) {
      wmma::load_matrix_sync(fragment, As<const Element>(from), kChunkDepth);
    }
    wmma::fragment<wmma::matrix_a, kUnits, kRows, kChunkDepth, Element,
                   wmma::row_major>
        fragment;
  };
  struct Rows {
    ECORNN_DEVICE void Load(Pointer<const Operand> from) {
      wmma::load_matrix_sync(fragment, As<const Element>(from),
                             kStageStride<Operand>);
    }
    wmma::fragment<wmma::matrix_b, kUnits, kRows, kChunkDepth, Element,
                   wmma::col_major>
        fragment;
  };

  struct Sums {
    ECORNN_DEVICE void Clear() { wmma::fill_fragment(fragment, 0.0f); }
    ECORNN_DEVICE void Add(const Sums& other) {
      ECORNN_UNROLL for (int i = 0; i < fragment.num_elements; ++i) {
        fragment.x[i] += other.fragment.x[i];
      }
    }
    // To (rows, units).
    ECORNN_DEVICE void Store(Pointer<C> to) const {
      wmma::store_matrix_sync(to, fragment, kUnits, wmma::mem_col_major);
    }
    wmma::fragment<wmma::accumulator, kUnits, kRows, kChunkDepth, float>
        fragment;
  };

  ECORNN_DEVICE static void MultiplyAdd(Sums& sums, const Weights& weights,
                                        const Rows& rows) {
    wmma::mma_sync(sums.fragment, weights.fragment, rows.fragment,
                   sums.fragment);
  }

  ECORNN_DEVICE static Operand ToOperand(float x) { return Narrow<S>(x); }
};

// float32 with operands rounded to TF32: 8 units by 32 rows. The tensor cores
// take 16 by 16, 8 deep: the rows are two halves, and what lies behind the
// weights' 8 units is multiplied as well, into sums that nobody reads. A tile
// of 16 units would not do that, but occupy half as many multiprocessors: the
// weights of large layers would not fit.
#if ECORNN_HAS_AMPERE_TILES
struct TensorFloat32Tile {
  using S = float;
  using C = float;
  using Operand = float;
  static constexpr int kUnits = 8;
  static constexpr int kRows = 32;
  static constexpr int kKept = 0;
  static constexpr int kAhead = 2;
  static constexpr int kProductWarps = kWarps;
  static constexpr bool kAvailable = true;
  static constexpr int kPartStride = 16;
  static constexpr int kWeightPadding = kUnits * kChunkDepth;
  static constexpr int kSide = 16;
  static constexpr int kDepth = 8;
  static constexpr int kDepths = kChunkDepth / kDepth;
  static constexpr int kHalves = kRows / kSide;

  struct Weights {
    ECORNN_DEVICE void Load(Pointer<const float> from) {
      ECORNN_UNROLL for (int i = 0; i < kDepths; ++i) {
        wmma::load_matrix_sync(fragments[i], from + i * kDepth, kChunkDepth);
      }
    }
    wmma::fragment<wmma::matrix_a, kSide, kSide, kDepth, wmma::precision::tf32,
                   wmma::row_major>
        fragments[kDepths];
  };
  struct Rows {
    ECORNN_DEVICE void Load(Pointer<const float> from) {
      ECORNN_UNROLL for (int i = 0; i < kDepths * kHalves; ++i) {
        wmma::load_matrix_sync(fragments[i],
                               from +
                                   i / kDepths * kSide * kStageStride<float> +
                                   i % kDepths * kDepth,
                               kStageStride<float>);
      }
    }
    wmma::fragment<wmma::matrix_b, kSide, kSide, kDepth, wmma::precision::tf32,
                   wmma::col_major>
        fragments[kDepths * kHalves];
  };
  struct Sums {
    ECORNN_DEVICE void Clear() {
      ECORNN_UNROLL for (int h = 0; h < kHalves; ++h) {
        wmma::fill_fragment(fragments[h], 0.0f);
      }
    }
    ECORNN_DEVICE void Add(const Sums& other) {
      ECORNN_UNROLL for (int h = 0; h < kHalves; ++h) {
        ECORNN_UNROLL for (int i = 0; i < fragments[h].num_elements; ++i) {
          fragments[h].x[i] += other.fragments[h].x[i];
        }
      }
    }
    // To (rows, part stride).
    ECORNN_DEVICE void Store(Pointer<float> to) const {
      ECORNN_UNROLL for (int h = 0; h < kHalves; ++h) {
        wmma::store_matrix_sync(to + h * kSide * kPartStride, fragments[h],
                                kPartStride, wmma::mem_col_major);
      }
    }
    wmma::fragment<wmma::accumulator, kSide, kSide, kDepth, float>
        fragments[kHalves];
  };

  ECORNN_DEVICE static void MultiplyAdd(Sums& sums, const Weights& weights,
                                        const Rows& rows) {
    ECORNN_UNROLL for (int i = 0; i < kDepths * kHalves; ++i) {
      auto& sum = sums.fragments[i / kDepths];
      wmma::mma_sync(sum, weights.fragments[i % kDepths], rows.fragments[i],
                     sum);
    }
  }
  ECORNN_DEVICE static float ToOperand(float x) {
    return RoundToTensorFloat32(x);
  }
};
#else
struct TensorFloat32Tile : MultiplyAddTile<float, float> {
  static constexpr bool kAvailable = false;
};
#endif

// --- The tile of a storage type -----------------------------------------

template <class S>
struct TileOf;
template <>
struct TileOf<float> : MultiplyAddTile<float, float> {};
template <>
struct TileOf<double> : MultiplyAddTile<double, double> {};
template <>
struct TileOf<Half> : NarrowTensorTile<Half, HalfElement> {};
#if ECORNN_HAS_AMPERE_TILES
template <>
struct TileOf<BFloat16> : NarrowTensorTile<BFloat16, BFloat16Element> {};
#else
// Without such tensor cores; the host's plan is the same.
template <>
struct TileOf<BFloat16> : MultiplyAddTile<BFloat16, float> {
  static constexpr int kKept = 2;
};
#endif

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_TILE_H_
