// The host's side: the device that is emulated, launches, errors.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_H_

#include <stddef.h>

#include "machine.h"

namespace ecornn {
namespace emulation {

// Codes are CUDA's.
int CheckOrdinal(int ordinal);
int CheckSharedBytes(size_t bytes);
int BlocksPerMultiprocessor(int threads, size_t shared_bytes, int* blocks);
int Zero(void* data, size_t bytes);

// Runs the kernel before it returns. One launch at a time: others wait.
int LaunchKernel(const Kernel& kernel, const LaunchRequest& request);

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_H_
