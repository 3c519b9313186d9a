// The device's properties and errors, from CUDA; the emulation has its own.
#ifndef ECORNN_CUDA_ON_CPU

#include "device.h"

#include <cuda_runtime.h>

#include <mutex>
#include <vector>

namespace ecornn {
namespace cuda {
namespace {

Error Ask(int ordinal, Device* device) {
  *device = {};
  device->ordinal = ordinal;
  int shared = 0;
  int cooperative = 0;
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {
      {cudaDevAttrComputeCapabilityMajor, &device->major},
      {cudaDevAttrComputeCapabilityMinor, &device->minor},
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared},
      {cudaDevAttrCooperativeLaunch, &cooperative},
  };
  for (const auto& w : wanted) {
    const Error error = cudaDeviceGetAttribute(w.value, w.attribute, ordinal);
    if (error != cudaSuccess) return error;
  }
  device->shared_per_block = shared;
  device->cooperative_launch = cooperative != 0;
  return cudaSuccess;
}

}  // namespace

const char* ErrorText(Error error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

Error QueryDevice(int ordinal, Device* device) {
  static std::mutex mutex;
  static std::vector<Device> known;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const Device& k : known) {
    if (k.ordinal == ordinal) {
      *device = k;
      return cudaSuccess;
    }
  }
  const Error error = Ask(ordinal, device);
  if (error == cudaSuccess) known.push_back(*device);
  return error;
}

}  // namespace cuda
}  // namespace ecornn

#endif  // ECORNN_CUDA_ON_CPU
