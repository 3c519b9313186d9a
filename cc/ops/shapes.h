// Shape checks for op definitions: every dimension has a name, the first tensor
// that shows it decides, and an error says which argument disagrees.
#ifndef TF_ECORNN_CC_OPS_SHAPES_H_
#define TF_ECORNN_CC_OPS_SHAPES_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace ecornn {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Checks that `shape` is compatible with `dims`, each of which is refined by
// it.
absl::Status MergeArgument(InferenceContext* c, const char* name,
                           ShapeHandle shape,
                           const std::vector<DimensionHandle*>& dims);

// The same for a required input, and for an optional one: a list input of at
// most one tensor.
absl::Status MergeInput(InferenceContext* c, const char* name,
                        const std::vector<DimensionHandle*>& dims);
absl::Status MergeOptionalInput(InferenceContext* c, const char* name,
                                const std::vector<DimensionHandle*>& dims);

// The dimensions of a recurrent op, with G gates: refined by each argument.
struct SequenceDims {
  SequenceDims(InferenceContext* context, int gate_count);

  // Merges the recurrent kernel, (U, GU).
  absl::Status MergeKernel();
  // Merges x and kernel: (B, T, F) and (F, GU), or (B, T, GU) and none.
  absl::Status MergeInputs();
  // Merges mask, reset and recurrent_dropout. Last, for it completes the sizes.
  absl::Status MergeShared();

  ShapeHandle State() const { return c->MakeShape({batch, units}); }
  ShapeHandle Sequence() const { return c->MakeShape({batch, steps, units}); }
  ShapeHandle Gates() const { return c->MakeShape({batch, steps, width}); }

  InferenceContext* c;
  int gates;
  DimensionHandle batch;
  DimensionHandle steps;
  DimensionHandle units;
  DimensionHandle width;  // gates * units

 private:
  absl::Status MergeWidth();
};

// Refuses a state_type other than the type that T is computed in.
absl::Status CheckStateType(InferenceContext* c);

// Refuses a list attribute above 1.
absl::Status CheckOptional(InferenceContext* c, const char* attribute,
                           int* value);

}  // namespace ecornn

#endif  // TF_ECORNN_CC_OPS_SHAPES_H_
