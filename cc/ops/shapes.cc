#include "shapes.h"

#include "invalid.h"
#include "tensorflow/core/framework/types.h"

namespace ecornn {

absl::Status MergeArgument(InferenceContext* c, const char* name,
                           ShapeHandle shape,
                           const std::vector<DimensionHandle*>& dims) {
  if (!c->RankKnown(shape)) return absl::OkStatus();
  const int rank = static_cast<int>(dims.size());
  if (c->Rank(shape) != rank) {
    return InvalidArgument(name, " must have ", rank,
                           " dimensions, received shape ",
                           c->DebugString(shape));
  }
  for (int i = 0; i < rank; ++i) {
    DimensionHandle merged;
    if (!c->Merge(c->Dim(shape, i), *dims[i], &merged).ok()) {
      return InvalidArgument(name, " must have size ", c->Value(*dims[i]),
                             " in dimension ", i, " to fit the other arguments",
                             ", received shape ", c->DebugString(shape));
    }
    *dims[i] = merged;
  }
  return absl::OkStatus();
}

absl::Status MergeInput(InferenceContext* c, const char* name,
                        const std::vector<DimensionHandle*>& dims) {
  std::vector<ShapeHandle> shapes;
  TF_RETURN_IF_ERROR(c->input(name, &shapes));
  return MergeArgument(c, name, shapes[0], dims);
}

absl::Status MergeOptionalInput(InferenceContext* c, const char* name,
                                const std::vector<DimensionHandle*>& dims) {
  std::vector<ShapeHandle> shapes;
  TF_RETURN_IF_ERROR(c->input(name, &shapes));
  if (shapes.size() > 1) {
    return InvalidArgument(name, " takes at most one tensor, received ",
                           shapes.size());
  }
  for (ShapeHandle shape : shapes) {
    TF_RETURN_IF_ERROR(MergeArgument(c, name, shape, dims));
  }
  return absl::OkStatus();
}

absl::Status CheckOptional(InferenceContext* c, const char* attribute,
                           int* value) {
  TF_RETURN_IF_ERROR(c->GetAttr(attribute, value));
  if (*value > 1) {
    return InvalidArgument(attribute, " must be 0 or 1, received ", *value);
  }
  return absl::OkStatus();
}

absl::Status CheckStateType(InferenceContext* c) {
  tensorflow::DataType type;
  tensorflow::DataType state_type;
  TF_RETURN_IF_ERROR(c->GetAttr("T", &type));
  TF_RETURN_IF_ERROR(c->GetAttr("state_type", &state_type));
  const tensorflow::DataType computed = type == tensorflow::DT_DOUBLE
                                            ? tensorflow::DT_DOUBLE
                                            : tensorflow::DT_FLOAT;
  if (state_type != computed) {
    return InvalidArgument(
        "state_type must be ", tensorflow::DataTypeString(computed),
        " for T = ", tensorflow::DataTypeString(type), ", received ",
        tensorflow::DataTypeString(state_type));
  }
  return absl::OkStatus();
}

SequenceDims::SequenceDims(InferenceContext* context, int gate_count)
    : c(context),
      gates(gate_count),
      batch(c->UnknownDim()),
      steps(c->UnknownDim()),
      units(c->UnknownDim()),
      width(c->UnknownDim()) {}

absl::Status SequenceDims::MergeKernel() {
  TF_RETURN_IF_ERROR(MergeInput(c, "recurrent_kernel", {&units, &width}));
  return MergeWidth();
}

absl::Status SequenceDims::MergeInputs() {
  int num_kernels;
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_kernels", &num_kernels));
  if (num_kernels == 0) return MergeInput(c, "x", {&batch, &steps, &width});
  DimensionHandle features = c->UnknownDim();
  TF_RETURN_IF_ERROR(MergeInput(c, "x", {&batch, &steps, &features}));
  return MergeOptionalInput(c, "kernel", {&features, &width});
}

absl::Status SequenceDims::MergeShared() {
  DimensionHandle gate_dim = c->MakeDim(gates);
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "mask", {&batch, &steps}));
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "reset", {&batch, &steps}));
  TF_RETURN_IF_ERROR(
      MergeOptionalInput(c, "recurrent_dropout", {&batch, &gate_dim, &units}));
  return MergeWidth();
}

// Refines width and units by each other.
absl::Status SequenceDims::MergeWidth() {
  if (c->ValueKnown(width)) {
    if (c->Value(width) % gates != 0) {
      return InvalidArgument("the last dimension must be ", gates,
                             " times the units, received ", c->Value(width));
    }
    const DimensionHandle derived = c->MakeDim(c->Value(width) / gates);
    // A failed merge clears its result.
    DimensionHandle merged;
    if (!c->Merge(units, derived, &merged).ok()) {
      return InvalidArgument("the last dimension must be ", gates, " times ",
                             c->Value(units), " units, received ",
                             c->Value(width));
    }
    units = merged;
  } else if (c->ValueKnown(units)) {
    TF_RETURN_IF_ERROR(c->Multiply(units, gates, &width));
  }
  if (c->ValueKnown(units) && c->Value(units) < 1) {
    return InvalidArgument("units must be at least 1, received ",
                           c->Value(units));
  }
  return absl::OkStatus();
}

}  // namespace ecornn
