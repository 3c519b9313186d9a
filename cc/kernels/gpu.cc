// The recurrent ops' GPU kernels: the CUDA engine on TensorFlow's stream.
//
// Compiled for an emulation of CUDA (ECORNN_CUDA_ON_CPU), the same kernels
// serve the CPU, in the place of the CPU engine's, so that a machine without a
// GPU can run them from Keras down.
#include <string>

#include "../../cuda/engine.h"
#include "absl/strings/str_cat.h"
#include "op.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

namespace ecornn {
namespace {

struct Where {
  int device;  // CUDA's ordinal
  cuda::Stream stream;
};

#ifdef ECORNN_CUDA_ON_CPU
constexpr auto& kDevice = tensorflow::DEVICE_CPU;

absl::Status Locate(tensorflow::OpKernelContext*, Where* where) {
  *where = {0, nullptr};
  return absl::OkStatus();
}
#else
constexpr auto& kDevice = tensorflow::DEVICE_GPU;

// The stream on which TensorFlow keeps the order of a GPU's work.
absl::Status Locate(tensorflow::OpKernelContext* context, Where* where) {
  const tensorflow::DeviceContext* device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr) {
    return absl::InternalError("TensorFlow gives this device no stream");
  }
  *where = {device->stream()->parent()->device_ordinal(),
            device->stream()->platform_specific_handle().stream};
  return absl::OkStatus();
}
#endif

class GpuRunner {
 public:
  explicit GpuRunner(tensorflow::OpKernelContext* context)
      : op_(context->op_kernel().type_string()) {
    status_ = Locate(context, &where_);
    settings_.device = where_.device;
    settings_.tensor_float_32 = tensorflow::tensor_float_32_execution_enabled();
    settings_.path = cuda::Path::kChoose;
  }

  template <class Args>
  absl::Status Scratch(const Args& args, size_t* bytes) {
    TF_RETURN_IF_ERROR(status_);
    return Checked("planning", cuda::Scratch(args, settings_, bytes));
  }

  template <class Args>
  absl::Status Run(const Args& args, void* scratch) {
    return Checked("a launch",
                   cuda::Run(args, settings_, scratch, where_.stream));
  }

 private:
  absl::Status Checked(const char* what, cuda::Error error) const {
    if (error == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        op_, " on GPU ", where_.device, ": ", what,
        " failed: ", cuda::ErrorText(error), " (CUDA ", error, ")"));
  }

  const std::string op_;
  absl::Status status_;
  Where where_ = {0, nullptr};
  cuda::Settings settings_;
};

ECORNN_REGISTER_KERNELS(kDevice, GpuRunner);

}  // namespace
}  // namespace ecornn

// Why CUDA cannot be used on a device, empty where it can: no driver, one that
// is too old for the CUDA that was built with, ...
extern "C" __attribute__((visibility("default"))) const char* ecornn_cuda_error(
    int device) {
  ecornn::cuda::Device properties;
  const ecornn::cuda::Error error =
      ecornn::cuda::QueryDevice(device, &properties);
  return error == 0 ? "" : ecornn::cuda::ErrorText(error);
}
