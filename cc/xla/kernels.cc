// The recurrent ops under XLA: each compiles to a custom call that stays in the
// program and runs the engine; handlers.cc is its other half.
#include <string>
#include <utility>
#include <vector>

#include "../kernels/arguments.h"
#include "../ops/invalid.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "call.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace ecornn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;
using tensorflow::shape_inference::InferenceContext;

// Operand and result that may share memory, as XLA's builder takes them.
using Alias = std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>;

// The op's argument that each of its inputs or outputs belongs to.
std::vector<std::string> Names(const tensorflow::NameRangeMap& ranges,
                               int count) {
  std::vector<std::string> names(count);
  for (const auto& [name, range] : ranges) {
    for (int i = range.first; i < range.second; ++i) names[i] = name;
  }
  return names;
}

// The same numbers in at most two dimensions, row-major. XLA gives an operand
// and a result one memory only if no change of shape lies between the operand
// and what makes it, for a sequence a product of two dimensions.
xla::Shape Flat(xla::PrimitiveType type, const TensorShape& shape) {
  std::vector<int64_t> sizes;
  for (int64_t size : shape.dim_sizes()) sizes.push_back(size);
  if (sizes.size() == 3) sizes = {sizes[0] * sizes[1], sizes[2]};
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(type, sizes);
}

// Values in an MLIR dictionary.
template <class N>
std::string Number(N value) {
  return absl::StrCat(static_cast<int64_t>(value), " : i64");
}
std::string Flag(bool value) { return value ? "true" : "false"; }
std::string Quoted(const std::vector<std::string>& names) {
  return absl::StrCat("\"", absl::StrJoin(names, " "), "\"");
}

// An op that becomes a custom call on its inputs.
class CallOp : public XlaOpKernel {
 public:
  explicit CallOp(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, tensorflow::OpRegistry::Global()->LookUp(
                                type_string(), &registered_));
    tensorflow::NameRangeMap inputs;
    tensorflow::NameRangeMap outputs;
    OP_REQUIRES_OK(context, NameRangesForNode(def(), registered_->op_def,
                                              &inputs, &outputs));
    inputs_ = Names(inputs, context->num_inputs());
    outputs_ = Names(outputs, context->num_outputs());
  }

 protected:
  // Makes the op's outputs the results of the call, which has these attributes
  // beside the names.
  absl::Status Call(XlaOpKernelContext* context, const std::string& attributes,
                    const std::vector<Alias>& aliases) const {
    std::vector<TensorShape> shapes;
    TF_RETURN_IF_ERROR(OutputShapes(context, &shapes));
    std::vector<xla::XlaOp> operands;
    std::vector<xla::Shape> operand_shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      TF_RETURN_IF_ERROR(CheckStatic(context, i));
      const TensorShape shape = context->op_kernel_context()->input(i).shape();
      operand_shapes.push_back(Flat(context->input_xla_type(i), shape));
      operands.push_back(
          xla::Reshape(context->Input(i), operand_shapes.back().dimensions()));
    }
    std::vector<xla::Shape> results;
    for (int i = 0; i < context->num_outputs(); ++i) {
      results.push_back(Flat(context->output_xla_type(i), shapes[i]));
    }
    const xla::XlaOp call = xla::CustomCallWithLayout(
        context->builder(), type_string(), operands,
        xla::ShapeUtil::MakeTupleShape(results), operand_shapes,
        absl::StrCat("{", kInputsAttribute, " = ", Quoted(inputs_), ", ",
                     kOutputsAttribute, " = ", Quoted(outputs_), ", ",
                     attributes, "}"),
        /*has_side_effect=*/false, aliases,
        /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    for (int i = 0; i < context->num_outputs(); ++i) {
      context->SetOutput(i, xla::Reshape(xla::GetTupleElement(call, i),
                                         shapes[i].dim_sizes()));
    }
    return absl::OkStatus();
  }

  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }

 private:
  // What the op's own shape function gives.
  absl::Status OutputShapes(XlaOpKernelContext* context,
                            std::vector<TensorShape>* shapes) const {
    std::vector<tensorflow::PartialTensorShape> inputs;
    for (int i = 0; i < context->num_inputs(); ++i) {
      inputs.push_back(context->op_kernel_context()->input(i).shape());
    }
    InferenceContext inference(TF_GRAPH_DEF_VERSION, def(), registered_->op_def,
                               inputs, {}, {}, {});
    TF_RETURN_IF_ERROR(inference.construction_status());
    TF_RETURN_IF_ERROR(inference.Run(registered_->shape_inference_fn));
    for (int i = 0; i < context->num_outputs(); ++i) {
      TensorShape& shape = shapes->emplace_back();
      for (int d = 0; d < inference.Rank(inference.output(i)); ++d) {
        shape.AddDim(inference.Value(inference.Dim(inference.output(i), d)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStatic(XlaOpKernelContext* context, int i) const {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->InputXlaShape(i));
    if (shape.is_static()) return absl::OkStatus();
    return InvalidArgument(
        inputs_[i], " has a size that is computed in the same jit-compiled ",
        "function, which ", type_string(),
        " does not take there: ", shape.ToString());
  }

  const tensorflow::OpRegistrationData* registered_ = nullptr;
  std::vector<std::string> inputs_;
  std::vector<std::string> outputs_;
};

class RecurrentCallOp : public CallOp {
 public:
  explicit RecurrentCallOp(OpKernelConstruction* context)
      : CallOp(context),
        is_lstm_(type_string() == kLstmOp || type_string() == kLstmGradOp),
        is_forward_(type_string() == kLstmOp || type_string() == kGruOp) {
    OP_REQUIRES_OK(context, ReadAttributes(context, is_lstm_, &sequence_));
    if (!is_forward_ && !is_lstm_) {
      bool present;
      OP_REQUIRES_OK(context,
                     ReadOptional(context, "num_recurrent_biases", &present));
      OP_REQUIRES(
          context, !present || sequence_.cell != CellKind::kGru,
          InvalidArgument("recurrent biases go with reset_after alone"));
    }
  }

  void Compile(XlaOpKernelContext* context) override {
    Sequence sequence = sequence_;
    OP_REQUIRES_OK(
        context, is_forward_
                     ? CheckForward(context->op_kernel_context(), &sequence)
                     : CheckBackward(context->op_kernel_context(), &sequence));
    const int64_t features =
        is_forward_ ? context->op_kernel_context()->input(0).dim_size(2) : 0;
    OP_REQUIRES_OK(context,
                   Call(context, Attributes(sequence, features), Aliases()));
  }

 private:
  // The gates, or their gradient, take the memory of the first input: that of
  // the inputs' product, or of the gates.
  std::vector<Alias> Aliases() const {
    if (absl::c_linear_search(inputs(), "kernel")) return {};
    const auto gates =
        absl::c_find(outputs(), is_forward_ ? "gates" : "grad_gates");
    if (gates == outputs().end()) return {};
    return {{{gates - outputs().begin()}, {0, {}}}};
  }

  static std::string Attributes(const Sequence& s, int64_t features) {
    return absl::StrCat(
        kCellAttribute, " = ", Number(s.cell), ", ", kBatchAttribute, " = ",
        Number(s.batch), ", ", kStepsAttribute, " = ", Number(s.steps), ", ",
        kUnitsAttribute, " = ", Number(s.units), ", ", kFeaturesAttribute,
        " = ", Number(features), ", ", kActivationAttribute, " = ",
        Number(s.activation), ", ", kRecurrentActivationAttribute, " = ",
        Number(s.recurrent_activation), ", ", kReverseAttribute, " = ",
        Flag(s.reverse), ", ", kZeroOutputAttribute, " = ",
        Flag(s.zero_output_for_mask));
  }

  const bool is_lstm_;
  const bool is_forward_;
  Sequence sequence_;  // without sizes
};

class SummedProductsCallOp : public CallOp {
 public:
  explicit SummedProductsCallOp(OpKernelConstruction* context)
      : CallOp(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, &sizes_));
  }

  void Compile(XlaOpKernelContext* context) override {
    SummedProductsSizes sizes = sizes_;
    OP_REQUIRES_OK(context,
                   CheckSummedProducts(context->op_kernel_context(), &sizes));
    OP_REQUIRES_OK(context, Call(context, Attributes(sizes), /*aliases=*/{}));
  }

 private:
  static std::string Attributes(const SummedProductsSizes& s) {
    return absl::StrCat(
        kBatchAttribute, " = ", Number(s.batch), ", ", kStepsAttribute, " = ",
        Number(s.steps), ", ", kWidthAttribute, " = ", Number(s.width), ", ",
        kFirstAttribute, " = ", Number(s.first()), ", ", kCountAttribute, " = ",
        Number(s.count()), ", ", kPartsAttribute, " = ", Number(s.part_count));
  }

  SummedProductsSizes sizes_;  // those of the attributes
};

// A device's compiler takes these kernels where handlers.cc registers handlers
// for its platform. Not REGISTER_XLA_OP: that table is read once, at the first
// op a process runs, and a library loaded later would not be seen.
#define REGISTER_XLA_KERNELS(device)                                          \
  REGISTER_KERNEL_BUILDER(Name(kLstmOp).Device(device), RecurrentCallOp);     \
  REGISTER_KERNEL_BUILDER(Name(kLstmGradOp).Device(device), RecurrentCallOp); \
  REGISTER_KERNEL_BUILDER(Name(kGruOp).Device(device), RecurrentCallOp);      \
  REGISTER_KERNEL_BUILDER(Name(kGruGradOp).Device(device), RecurrentCallOp);  \
  REGISTER_KERNEL_BUILDER(Name(kSummedProductsOp).Device(device),             \
                          SummedProductsCallOp)

REGISTER_XLA_KERNELS("XLA_CPU_JIT");

#undef REGISTER_XLA_KERNELS

}  // namespace
}  // namespace ecornn
