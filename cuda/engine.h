// The GPU engine's interface: a whole sequence of a recurrent cell, forward and
// backward, with the CPU engine's arguments. Framework-free, and without CUDA's
// headers: every pointer of the arguments is device memory.
#ifndef TF_ECORNN_CUDA_ENGINE_H_
#define TF_ECORNN_CUDA_ENGINE_H_

#include <stddef.h>

#include "../cc/recurrence/sequence.h"
#include "device.h"

namespace ecornn {
namespace cuda {

// How a call runs.
enum class Path {
  kChoose,      // what suits the device
  kSteps,       // one launch a step, of any size, on any device
  kPersistent,  // one cooperative launch; the weights stay on the processors
};

struct Settings {
  int device;            // the stream's
  bool tensor_float_32;  // float32 products may round their operands to TF32
  Path path;
};

// For Args = ForwardArgs<S> or BackwardArgs<S>; S: float, double, Half,
// BFloat16.

// Bytes of 256-byte aligned device memory that a call needs. Its contents on
// entry do not matter.
template <class Args>
Error Scratch(const Args& args, const Settings& settings, size_t* bytes);

// Enqueues a call and returns at once. The error is that of the first launch
// that failed; kPersistent on what does not fit is an invalid value.
//
// Results of a row depend on that row and the weights alone, bit for bit, on
// one device and path; gradients of biases sum in an order that depends on B
// and T only.
template <class Args>
Error Run(const Args& args, const Settings& settings, void* scratch,
          Stream stream);

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_ENGINE_H_
