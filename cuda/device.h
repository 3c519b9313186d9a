// The device as the planner sees it, and the errors of the runtime.
#ifndef TF_ECORNN_CUDA_DEVICE_H_
#define TF_ECORNN_CUDA_DEVICE_H_

#include <stddef.h>

namespace ecornn {
namespace cuda {

// A CUDA stream: cudaStream_t, without CUDA's header.
using Stream = void*;

// 0 is success, else a cudaError_t.
using Error = int;
const char* ErrorText(Error error);

struct Device {
  int ordinal;
  int major;  // compute capability
  int minor;
  int multiprocessors;
  size_t shared_per_block;  // bytes, the most that a launch may ask for
  bool cooperative_launch;
};

// Properties of a device; asks the driver once.
Error QueryDevice(int ordinal, Device* device);

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_DEVICE_H_
