// What the units of units/ define: a tile's forward pass (ForwardArgs<S>), or
// its backward pass (BackwardArgs<S>), for every cell.
#ifndef TF_ECORNN_CUDA_UNITS_H_
#define TF_ECORNN_CUDA_UNITS_H_

#include "engine.h"

namespace ecornn {
namespace cuda {

template <class Args, bool kTensorFloat32>
struct TileEngine {
  static Error Scratch(const Args& args, const Device& device, Path path,
                       size_t* bytes);
  static Error Run(const Args& args, const Device& device, Path path,
                   void* scratch, Stream stream);
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_UNITS_H_
