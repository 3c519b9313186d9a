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

// What EcoRNN>SummedProducts says before it sees a tensor, and the sizes that
// its inputs have: (B, T, M) for each of `lefts`, (B, T, N).
struct SummedProductsSizes {
  int parts;
  int first_part;
  int part_count;
  int64_t batch;
  int64_t steps;
  int64_t width;  // N

  int64_t first() const { return width / parts * first_part; }
  int64_t count() const { return width / parts * part_count; }
};

// Reads the attributes.
absl::Status ReadAttributes(tensorflow::OpKernelConstruction* context,
                            SummedProductsSizes* sizes);

// Checks the shapes of the inputs against each other and sets the sizes.
absl::Status CheckSummedProducts(tensorflow::OpKernelContext* context,
                                 SummedProductsSizes* sizes);

// The tensor of an optional list input, or null.
absl::Status OptionalInput(tensorflow::OpKernelContext* context,
                           const char* name, const tensorflow::Tensor** tensor);

// Counts an execution of a fused op in this process; see ecornn_calls().
void CountCall();

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_ARGUMENTS_H_
