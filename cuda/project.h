// The inputs' own product, for ops that are handed x and its kernel: x (B * T,
// F) times the packed kernel gives the input side of the gates (B * T, GU).
// One warp takes one tile of rows and one slice of units.
#ifndef TF_ECORNN_CUDA_PROJECT_H_
#define TF_ECORNN_CUDA_PROJECT_H_

#include "tile.h"

namespace ecornn {
namespace cuda {

template <class S, class Operand>
struct ProjectArgs {
  const S* x;             // (rows, features)
  const Operand* packed;  // (unit slices, chunks, gates, tile units, 16)
  S* projected;           // (rows, gates * units)
  int64_t rows;
  int64_t features;
  int64_t units;
  int64_t unit_slices;
  int64_t chunks;
};

// Bytes of shared memory that a block of ProjectInputs takes.
template <class Tile>
constexpr size_t ProjectSharedBytes() {
  return kWarps * (Tile::kRows * kStageStride<typename Tile::Operand> *
                       sizeof(typename Tile::Operand) +
                   Tile::kRows * Tile::kPartStride * sizeof(typename Tile::C));
}

template <class Tile, int kGates>
class Projection {
 public:
  using S = typename Tile::S;
  using C = typename Tile::C;
  using Operand = typename Tile::Operand;
  using Args = ProjectArgs<S, Operand>;

  ECORNN_DEVICE explicit Projection(const Args& args) : args_(args) {}

  ECORNN_DEVICE void Run() {
    const int64_t row_tiles = (args_.rows + Tile::kRows - 1) / Tile::kRows;
    const int64_t tile = BlockIndex() * kWarps + Warp();
    if (tile >= row_tiles * args_.unit_slices) return;
    const int64_t slice = tile % args_.unit_slices;
    const int64_t first_row = tile / args_.unit_slices * Tile::kRows;
    typename Tile::Sums sums[kGates];
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) sums[g].Clear();
    const auto packed = Global(
        args_.packed, args_.unit_slices * args_.chunks * kGates * kGateWeights +
                          Tile::kWeightPadding);
    for (int64_t chunk = 0; chunk < args_.chunks; ++chunk) {
      PutOnStage(first_row, chunk * kChunkDepth);
      WarpBarrier(SyncPoint::kStaged);
      typename Tile::Rows rows;
      rows.Load(Stage());
      ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
        typename Tile::Weights weights;
        weights.Load(packed + ((slice * args_.chunks + chunk) * kGates + g) *
                                  kGateWeights);
        Tile::MultiplyAdd(sums[g], weights, rows);
      }
      WarpBarrier(SyncPoint::kStageRead);
    }
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      sums[g].Store(Parts());
      WarpBarrier(SyncPoint::kPartsReady);
      PutOut(first_row, slice, g);
      WarpBarrier(SyncPoint::kPartsRead);
    }
  }

 private:
  static constexpr int kGateWeights = Tile::kUnits * kChunkDepth;
  static constexpr int kStageElements = Tile::kRows * kStageStride<Operand>;
  static constexpr int kPartElements = Tile::kRows * Tile::kPartStride;

  ECORNN_DEVICE static int Warp() { return ThreadIndex() / kWarpLanes; }
  ECORNN_DEVICE static int Lane() { return ThreadIndex() % kWarpLanes; }
  ECORNN_DEVICE static Pointer<Operand> Stage() {
    return Shared<Operand>(0, kWarps * kStageElements) +
           Warp() * kStageElements;
  }
  ECORNN_DEVICE static Pointer<C> Parts() {
    return Shared<C>(kWarps * kStageElements * sizeof(Operand),
                     kWarps * kPartElements) +
           Warp() * kPartElements;
  }

  ECORNN_DEVICE void PutOnStage(int64_t first_row, int64_t first_feature) {
    const auto x = Global(args_.x, args_.rows * args_.features);
    for (int i = Lane(); i < Tile::kRows * kChunkDepth; i += kWarpLanes) {
      const int64_t row = first_row + i / kChunkDepth;
      const int64_t feature = first_feature + i % kChunkDepth;
      C value(0);
      if (row < args_.rows && feature < args_.features) {
        value = Widen(x[row * args_.features + feature]);
      }
      Stage()[i / kChunkDepth * kStageStride<Operand> + i % kChunkDepth] =
          Tile::ToOperand(value);
    }
  }

  ECORNN_DEVICE void PutOut(int64_t first_row, int64_t slice, int gate) {
    const auto to = Global(args_.projected, args_.rows * kGates * args_.units);
    for (int i = Lane(); i < kTileSums; i += kWarpLanes) {
      const int64_t row = first_row + i / Tile::kUnits;
      const int64_t unit = slice * Tile::kUnits + i % Tile::kUnits;
      if (row < args_.rows && unit < args_.units) {
        to[(row * kGates + gate) * args_.units + unit] = Narrow<S>(C(
            Parts()[i / Tile::kUnits * Tile::kPartStride + i % Tile::kUnits]));
      }
    }
  }

  const Args& args_;
};

template <class Tile, int kGates>
ECORNN_KERNEL ECORNN_BOUNDS(kBlockThreads, 1)
    ProjectInputs(ProjectArgs<typename Tile::S, typename Tile::Operand> args) {
  if constexpr (Tile::kAvailable) Projection<Tile, kGates>(args).Run();
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_PROJECT_H_
