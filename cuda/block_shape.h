// The shape of a block of threads, for the kernels and their planner.
#ifndef TF_ECORNN_CUDA_BLOCK_SHAPE_H_
#define TF_ECORNN_CUDA_BLOCK_SHAPE_H_

namespace ecornn {
namespace cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr int kWarps = 8;
inline constexpr int kBlockThreads = kWarps * kWarpLanes;
// A tile has one sum, one unit of one row, for each thread of the block.
inline constexpr int kTileSums = kBlockThreads;
// Units that a chunk of a product's depth holds.
inline constexpr int kChunkDepth = 16;
inline constexpr int kVectorBytes = 16;
// Counters lie in cache lines of their own.
inline constexpr int kCounterStride = 32;

// Staged rows lie one vector further apart than their length, so that a column
// of them meets more banks.
constexpr int StageStride(int operand_bytes) {
  return kChunkDepth + kVectorBytes / operand_bytes;
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_BLOCK_SHAPE_H_
