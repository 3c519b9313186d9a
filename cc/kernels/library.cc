// Facts about this library, for `python -m tf_ecornn --info` and the layers.
#include <algorithm>

#include "../recurrence/isa.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

#define ECORNN_EXPORT extern "C" __attribute__((visibility("default")))

// The instruction set in use.
ECORNN_EXPORT const char* ecornn_isa() {
  return ecornn::IsaName(ecornn::ActiveIsa());
}

// Comma-separated names of the instruction sets that were compiled in.
ECORNN_EXPORT const char* ecornn_compiled_isas() {
  return ecornn::CompiledIsas();
}

// Whether the ops have kernels for GPUs.
ECORNN_EXPORT int ecornn_has_cuda() {
  static const bool has_cuda = [] {
    const auto kernels = tensorflow::GetRegisteredKernelsForOp("EcoRNN>Lstm");
    return std::any_of(kernels.kernel().begin(), kernels.kernel().end(),
                       [](const tensorflow::KernelDef& kernel) {
                         return kernel.device_type() == tensorflow::DEVICE_GPU;
                       });
  }();
  return has_cuda;
}
