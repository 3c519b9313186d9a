// The places where the kernels synchronise, by name: a test takes each one out
// and must see the emulation fail.
#ifndef TF_ECORNN_CUDA_SYNC_POINT_H_
#define TF_ECORNN_CUDA_SYNC_POINT_H_

namespace ecornn {
namespace cuda {

enum class SyncPoint : int {
  kStaged,        // warp: a chunk of the operand lies in shared memory
  kStageRead,     // warp: it has been read and may be replaced
  kPartsReady,    // block: every warp's partial sums lie in shared memory
  kPartsRead,     // block: they have been added and may be replaced
  kRowsMarked,    // block: the rows' marks of a step lie in shared memory
  kPublished,     // block: all of its threads have published
  kPublishFence,  // device: what the block published, before it arrives
  kArrived,       // block: another block's arrival is known to all threads
  kArrivalFence,  // device: an arrival, before what the others published
};
inline constexpr int kSyncPointCount = 9;

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_SYNC_POINT_H_
