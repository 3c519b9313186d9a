#include "arguments.h"

#include <atomic>
#include <initializer_list>
#include <limits>
#include <string>

#include "../ops/invalid.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace ecornn {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

std::atomic<int64_t> call_count{0};

absl::Status ReadActivation(OpKernelConstruction* context, const char* name,
                            Activation* activation) {
  std::string value;
  TF_RETURN_IF_ERROR(context->GetAttr(name, &value));
  for (int i = 0; i < kActivationCount; ++i) {
    if (value == kActivationNames[i]) {
      *activation = static_cast<Activation>(i);
      return absl::OkStatus();
    }
  }
  return InvalidArgument(name, " is unknown: ", value);
}

// The cell state is kept in the type that T is computed in.
absl::Status CheckStateType(OpKernelConstruction* context) {
  tensorflow::DataType type;
  tensorflow::DataType state_type;
  TF_RETURN_IF_ERROR(context->GetAttr("T", &type));
  TF_RETURN_IF_ERROR(context->GetAttr("state_type", &state_type));
  if ((type == tensorflow::DT_DOUBLE) !=
      (state_type == tensorflow::DT_DOUBLE)) {
    return InvalidArgument(
        "state_type ", tensorflow::DataTypeString(state_type),
        " does not go with T ", tensorflow::DataTypeString(type));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const char* name, const Tensor& tensor,
                        std::initializer_list<int64_t> sizes) {
  const TensorShape expected(sizes);
  if (tensor.shape() != expected) {
    return InvalidArgument(name, " must have shape ", expected.DebugString(),
                           ", received ", tensor.shape().DebugString());
  }
  return absl::OkStatus();
}

absl::Status CheckInput(OpKernelContext* context, const char* name,
                        std::initializer_list<int64_t> sizes) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(context->input(name, &tensor));
  return CheckShape(name, *tensor, sizes);
}

absl::Status CheckOptionalInput(OpKernelContext* context, const char* name,
                                std::initializer_list<int64_t> sizes) {
  const Tensor* tensor = nullptr;
  TF_RETURN_IF_ERROR(OptionalInput(context, name, &tensor));
  return tensor == nullptr ? absl::OkStatus()
                           : CheckShape(name, *tensor, sizes);
}

// The units from the recurrent kernel, batch and steps from the (B, T, width)
// tensor `name`, where width is GU unless any is admitted.
absl::Status ReadSizes(OpKernelContext* context, const char* name,
                       bool any_width, Sequence* sequence) {
  const int64_t gate_count = GateCount(sequence->cell);
  const Tensor* steps;
  const Tensor* kernel;
  TF_RETURN_IF_ERROR(context->input(name, &steps));
  TF_RETURN_IF_ERROR(context->input("recurrent_kernel", &kernel));
  if (kernel->dims() != 2 || kernel->dim_size(0) < 1 ||
      kernel->dim_size(0) > std::numeric_limits<int32_t>::max() ||
      kernel->dim_size(1) != gate_count * kernel->dim_size(0)) {
    return InvalidArgument("recurrent_kernel must have shape (units, ",
                           gate_count,
                           " * units) with units at least 1, received ",
                           kernel->shape().DebugString());
  }
  const int64_t units = kernel->dim_size(0);
  const int64_t width = gate_count * units;
  if (steps->dims() != 3 || !(any_width || steps->dim_size(2) == width)) {
    return InvalidArgument(
        name, " must have shape (batch, steps, ",
        any_width ? std::string("features") : std::to_string(width), ") for ",
        units, " units, received ", steps->shape().DebugString());
  }
  sequence->batch = steps->dim_size(0);
  sequence->steps = steps->dim_size(1);
  sequence->units = units;
  return absl::OkStatus();
}

// The optional inputs that forward and gradient ops share.
absl::Status CheckShared(OpKernelContext* context, const Sequence& s) {
  TF_RETURN_IF_ERROR(CheckOptionalInput(context, "mask", {s.batch, s.steps}));
  TF_RETURN_IF_ERROR(CheckOptionalInput(context, "reset", {s.batch, s.steps}));
  return CheckOptionalInput(context, "recurrent_dropout",
                            {s.batch, GateCount(s.cell), s.units});
}

}  // namespace

absl::Status ReadAttributes(OpKernelConstruction* context, bool is_lstm,
                            Sequence* sequence) {
  *sequence = {};
  sequence->cell = CellKind::kLstm;
  if (is_lstm) {
    TF_RETURN_IF_ERROR(CheckStateType(context));
  } else {
    bool reset_after;
    TF_RETURN_IF_ERROR(context->GetAttr("reset_after", &reset_after));
    sequence->cell = reset_after ? CellKind::kGruResetAfter : CellKind::kGru;
  }
  TF_RETURN_IF_ERROR(
      ReadActivation(context, "activation", &sequence->activation));
  TF_RETURN_IF_ERROR(ReadActivation(context, "recurrent_activation",
                                    &sequence->recurrent_activation));
  TF_RETURN_IF_ERROR(context->GetAttr("reverse", &sequence->reverse));
  return context->GetAttr("zero_output_for_mask",
                          &sequence->zero_output_for_mask);
}

absl::Status ReadOptional(OpKernelConstruction* context, const char* name,
                          bool* present) {
  int count;
  TF_RETURN_IF_ERROR(context->GetAttr(name, &count));
  if (count > 1) {
    return InvalidArgument(name, " must be 0 or 1, received ", count);
  }
  *present = count == 1;
  return absl::OkStatus();
}

absl::Status OptionalInput(OpKernelContext* context, const char* name,
                           const Tensor** tensor) {
  OpInputList list;
  TF_RETURN_IF_ERROR(context->input_list(name, &list));
  if (list.size() > 1) {
    return InvalidArgument(name, " takes at most one tensor, received ",
                           list.size());
  }
  *tensor = list.size() == 1 ? &list[0] : nullptr;
  return absl::OkStatus();
}

absl::Status CheckForward(OpKernelContext* context, Sequence* sequence) {
  const Tensor* kernel;
  TF_RETURN_IF_ERROR(OptionalInput(context, "kernel", &kernel));
  TF_RETURN_IF_ERROR(ReadSizes(context, "x", kernel != nullptr, sequence));
  const Sequence& s = *sequence;
  const int64_t width = GateCount(s.cell) * s.units;
  TF_RETURN_IF_ERROR(CheckInput(context, "initial_h", {s.batch, s.units}));
  TF_RETURN_IF_ERROR(CheckOptionalInput(context, "bias", {width}));
  if (kernel != nullptr) {
    const Tensor* x;
    TF_RETURN_IF_ERROR(context->input("x", &x));
    TF_RETURN_IF_ERROR(CheckShape("kernel", *kernel, {x->dim_size(2), width}));
  }
  if (IsLstm(s.cell)) {
    TF_RETURN_IF_ERROR(CheckInput(context, "initial_c", {s.batch, s.units}));
  } else {
    TF_RETURN_IF_ERROR(CheckOptionalInput(context, "recurrent_bias", {width}));
    const Tensor* recurrent_bias;
    TF_RETURN_IF_ERROR(
        OptionalInput(context, "recurrent_bias", &recurrent_bias));
    if (recurrent_bias != nullptr && s.cell == CellKind::kGru) {
      return InvalidArgument("recurrent_bias goes with reset_after alone");
    }
  }
  return CheckShared(context, s);
}

absl::Status CheckBackward(OpKernelContext* context, Sequence* sequence) {
  TF_RETURN_IF_ERROR(ReadSizes(context, "gates", false, sequence));
  const Sequence& s = *sequence;
  if (IsLstm(s.cell)) {
    TF_RETURN_IF_ERROR(
        CheckInput(context, "previous_c", {s.batch, s.steps, s.units}));
    TF_RETURN_IF_ERROR(CheckInput(context, "grad_final_c", {s.batch, s.units}));
  } else {
    TF_RETURN_IF_ERROR(
        CheckInput(context, "previous_h", {s.batch, s.steps, s.units}));
    TF_RETURN_IF_ERROR(
        CheckInput(context, "candidate", {s.batch, s.steps, s.units}));
  }
  for (const char* name : {"grad_last_output", "grad_final_h"}) {
    TF_RETURN_IF_ERROR(CheckInput(context, name, {s.batch, s.units}));
  }
  TF_RETURN_IF_ERROR(
      CheckOptionalInput(context, "grad_outputs", {s.batch, s.steps, s.units}));
  return CheckShared(context, s);
}

absl::Status ReadAttributes(OpKernelConstruction* context,
                            SummedProductsSizes* sizes) {
  *sizes = {};
  TF_RETURN_IF_ERROR(context->GetAttr("parts", &sizes->parts));
  TF_RETURN_IF_ERROR(context->GetAttr("first_part", &sizes->first_part));
  TF_RETURN_IF_ERROR(context->GetAttr("part_count", &sizes->part_count));
  if (sizes->first_part + sizes->part_count > sizes->parts) {
    return InvalidArgument("first_part + part_count must be at most parts, ",
                           sizes->parts, ", received ", sizes->first_part,
                           " + ", sizes->part_count);
  }
  int left_count;
  TF_RETURN_IF_ERROR(context->GetAttr("num_lefts", &left_count));
  if (left_count > SummedProductsArgs<float>::kMostLefts) {
    return InvalidArgument("lefts takes at most ",
                           SummedProductsArgs<float>::kMostLefts,
                           " tensors, received ", left_count);
  }
  return absl::OkStatus();
}

absl::Status CheckSummedProducts(OpKernelContext* context,
                                 SummedProductsSizes* sizes) {
  const Tensor* right;
  TF_RETURN_IF_ERROR(context->input("right", &right));
  if (right->dims() != 3) {
    return InvalidArgument(
        "right must have shape (batch, steps, columns), received ",
        right->shape().DebugString());
  }
  if (right->dim_size(2) % sizes->parts != 0) {
    return InvalidArgument("right must have a number of columns that parts, ",
                           sizes->parts, ", divides, received ",
                           right->shape().DebugString());
  }
  sizes->batch = right->dim_size(0);
  sizes->steps = right->dim_size(1);
  sizes->width = right->dim_size(2);
  OpInputList lefts;
  TF_RETURN_IF_ERROR(context->input_list("lefts", &lefts));
  for (int i = 0; i < lefts.size(); ++i) {
    const TensorShape& shape = lefts[i].shape();
    if (shape.dims() != 3 || shape.dim_size(0) != sizes->batch ||
        shape.dim_size(1) != sizes->steps) {
      return InvalidArgument("lefts[", i, "] must have shape (batch, steps, ",
                             "columns) with the batch and steps of right, ",
                             right->shape().DebugString(), ", received ",
                             shape.DebugString());
    }
  }
  TF_RETURN_IF_ERROR(
      CheckOptionalInput(context, "mask", {sizes->batch, sizes->steps}));
  return CheckOptionalInput(
      context, "factors",
      {sizes->batch, sizes->part_count, lefts[0].dim_size(2)});
}

void CountCall() { call_count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace ecornn

// Executions of fused ops, forward and gradient, since the library was loaded.
extern "C" __attribute__((visibility("default"))) int64_t ecornn_calls() {
  return ecornn::call_count.load(std::memory_order_relaxed);
}
