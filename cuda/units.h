// What the units of units/ define: a tile's forward, or its backward, for every
// cell.
#ifndef TF_ECORNN_CUDA_UNITS_H_
#define TF_ECORNN_CUDA_UNITS_H_

#include "engine.h"

namespace ecornn {
namespace cuda {

template <class S, bool kTensorFloat32>
struct ForwardEngine {
  static Error Scratch(const ForwardArgs<S>& args, const Device& device,
                       Path path, size_t* bytes);
  static Error Run(const ForwardArgs<S>& args, const Device& device, Path path,
                   void* scratch, Stream stream);
};

template <class S, bool kTensorFloat32>
struct BackwardEngine {
  static Error Scratch(const BackwardArgs<S>& args, const Device& device,
                       Path path, size_t* bytes);
  static Error Run(const BackwardArgs<S>& args, const Device& device, Path path,
                   void* scratch, Stream stream);
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_UNITS_H_
