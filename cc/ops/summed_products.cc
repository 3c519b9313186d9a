// Definition of EcoRNN>SummedProducts.
#include "invalid.h"
#include "shapes.h"

namespace ecornn {
namespace {

// The width of the columns of `right` that the products have.
absl::Status Columns(InferenceContext* c, DimensionHandle width,
                     DimensionHandle* columns) {
  int parts, first_part, part_count;
  TF_RETURN_IF_ERROR(c->GetAttr("parts", &parts));
  TF_RETURN_IF_ERROR(c->GetAttr("first_part", &first_part));
  TF_RETURN_IF_ERROR(c->GetAttr("part_count", &part_count));
  if (first_part + part_count > parts) {
    return InvalidArgument("first_part + part_count must be at most parts, ",
                           parts, ", received ", first_part, " + ", part_count);
  }
  if (c->ValueKnown(width) && c->Value(width) % parts != 0) {
    return InvalidArgument("right must have a number of columns that parts, ",
                           parts, ", divides, received ", c->Value(width));
  }
  DimensionHandle part;
  TF_RETURN_IF_ERROR(c->Divide(width, parts, /*evenly_divisible=*/true, &part));
  return c->Multiply(part, part_count, columns);
}

absl::Status SummedProductsShape(InferenceContext* c) {
  DimensionHandle batch = c->UnknownDim();
  DimensionHandle steps = c->UnknownDim();
  DimensionHandle width = c->UnknownDim();
  TF_RETURN_IF_ERROR(MergeInput(c, "right", {&batch, &steps, &width}));
  std::vector<ShapeHandle> lefts;
  TF_RETURN_IF_ERROR(c->input("lefts", &lefts));
  std::vector<DimensionHandle> widths(lefts.size());
  for (size_t i = 0; i < lefts.size(); ++i) {
    // Each its own: what is merged with one handle, TensorFlow takes for equal.
    widths[i] = c->UnknownDim();
    TF_RETURN_IF_ERROR(MergeArgument(c, absl::StrCat("lefts[", i, "]").c_str(),
                                     lefts[i], {&batch, &steps, &widths[i]}));
  }
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "mask", {&batch, &steps}));
  int part_count;
  TF_RETURN_IF_ERROR(c->GetAttr("part_count", &part_count));
  DimensionHandle counted = c->MakeDim(part_count);
  TF_RETURN_IF_ERROR(
      MergeOptionalInput(c, "factors", {&batch, &counted, &widths[0]}));
  DimensionHandle columns;
  TF_RETURN_IF_ERROR(Columns(c, width, &columns));
  for (size_t i = 0; i < lefts.size(); ++i) {
    c->set_output(i, c->MakeShape({widths[i], columns}));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EcoRNN>SummedProducts")
    .Input("lefts: num_lefts * T")
    .Input("right: T")
    .Input("mask: num_masks * bool")
    .Input("factors: num_factors * T")
    .Output("products: num_lefts * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_lefts: int >= 1")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("num_factors: int >= 0 = 0")
    .Attr("parts: int >= 1 = 1")
    .Attr("first_part: int >= 0 = 0")
    .Attr("part_count: int >= 1 = 1")
    .SetShapeFn(SummedProductsShape)
    .Doc(R"doc(
Products of sequences, transposed, with columns of another, summed over batch
rows and steps. The gradients of a recurrent cell's weights are such sums.

lefts: one or two tensors (B, T, M), each with an M of its own.
right: (B, T, N). Its columns fall into `parts` parts of equal width.
mask: none or one tensor (B, T); a step that is false is left out.
factors: none or one tensor (B, part_count, M) that multiplies the first of
  `lefts` at all steps of a row: factors[:, p] for the columns of part
  first_part + p.
products: for each of `lefts` (M, part_count * N / parts), in the parts' order.
  16-bit types are summed in float32. The bits do not depend on the number of
  threads.
first_part: the first of the parts that are taken.
part_count: how many are.
)doc");

}  // namespace ecornn
