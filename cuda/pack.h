// Weights in the order that tiles read them: (unit slices, chunks, gates, tile
// units, 16), of the type that is multiplied, zero beyond the arrays.
#ifndef TF_ECORNN_CUDA_PACK_H_
#define TF_ECORNN_CUDA_PACK_H_

#include "block_shape.h"
#include "scalar_math.h"

namespace ecornn {
namespace cuda {

template <class S, class Operand>
struct PackArgs {
  const S* weights;  // (depth, gates * units), or transposed: (units, gates *
                     // depth)
  Operand* packed;
  int64_t depth;
  int64_t units;
  int gates;
  int64_t unit_slices;
  int64_t chunks;
};

template <class Tile, bool kTransposed>
ECORNN_KERNEL PackWeights(
    PackArgs<typename Tile::S, typename Tile::Operand> args) {
  if constexpr (Tile::kAvailable) {
    constexpr int kTileWeights = Tile::kUnits * kChunkDepth;
    const int64_t count =
        args.unit_slices * args.chunks * args.gates * kTileWeights;
    const auto from =
        Global(args.weights, args.depth * args.units * args.gates);
    const auto to = Global(args.packed, count + Tile::kWeightPadding);
    const int64_t stride = BlockCount() * ThreadCount();
    if (BlockIndex() == 0 && ThreadIndex() < Tile::kWeightPadding) {
      to[count + ThreadIndex()] = Tile::ToOperand(typename Tile::C(0));
    }
    for (int64_t i = BlockIndex() * ThreadCount() + ThreadIndex(); i < count;
         i += stride) {
      const int64_t tile = i / kTileWeights;
      const int in_tile = static_cast<int>(i % kTileWeights);
      // Neighbouring threads read neighbours.
      const int u =
          kTransposed ? in_tile / kChunkDepth : in_tile % Tile::kUnits;
      const int d =
          kTransposed ? in_tile % kChunkDepth : in_tile / Tile::kUnits;
      const int64_t g = tile % args.gates;
      const int64_t depth = tile / args.gates % args.chunks * kChunkDepth + d;
      const int64_t unit = tile / args.gates / args.chunks * Tile::kUnits + u;
      typename Tile::C value(0);
      if (unit < args.units && depth < args.depth) {
        value = Widen(kTransposed
                          ? from[(unit * args.gates + g) * args.depth + depth]
                          : from[(depth * args.gates + g) * args.units + unit]);
      }
      to[tile * kTileWeights + u * kChunkDepth + d] = Tile::ToOperand(value);
    }
  }
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_PACK_H_
