// The arguments of the recurrent ops at run time: attributes, checks, sizes.
// For the kernels of every cell and device.
#ifndef TF_ECORNN_CC_KERNELS_ARGUMENTS_H_
#define TF_ECORNN_CC_KERNELS_ARGUMENTS_H_

#include "../recurrence/engine.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace ecornn {

inline bool IsLstm(CellKind cell) { return cell == CellKind::kLstm; }
inline int64_t GateCount(CellKind cell) { return IsLstm(cell) ? 4 : 3; }

// What an op says of its sequences before it sees a tensor: attributes. The
// sizes of `sequence` are not set.
absl::Status ReadAttributes(tensorflow::OpKernelConstruction* context,
                            bool is_lstm, Sequence* sequence);

// Reads an attribute that counts an optional tensor: 0 or 1.
absl::Status ReadOptional(tensorflow::OpKernelConstruction* context,
                          const char* name, bool* present);

// Checks the shapes of a forward or a gradient op's inputs against each other
// and sets the sizes.
absl::Status CheckForward(tensorflow::OpKernelContext* context,
                          Sequence* sequence);
absl::Status CheckBackward(tensorflow::OpKernelContext* context,
                           Sequence* sequence);

// The tensor of an optional list input, or null.
absl::Status OptionalInput(tensorflow::OpKernelContext* context,
                           const char* name, const tensorflow::Tensor** tensor);

// Counts an execution of a fused op in this process; see ecornn_calls().
void CountCall();

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_ARGUMENTS_H_
