// Definitions of EcoRNN>Gru and EcoRNN>GruGrad. Exported graphs freeze them:
// extend only by list inputs at the end whose length defaults to 0.
#include "attributes.h"
#include "shapes.h"

namespace ecornn {
namespace {

constexpr int kGates = 3;

absl::Status GruShape(InferenceContext* c) {
  SequenceDims d(c, kGates);
  int num_outputs;
  int num_saved;
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_outputs", &num_outputs));
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_saved", &num_saved));
  TF_RETURN_IF_ERROR(d.MergeKernel());
  TF_RETURN_IF_ERROR(d.MergeInputs());
  TF_RETURN_IF_ERROR(MergeInput(c, "initial_h", {&d.batch, &d.units}));
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "bias", {&d.width}));
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "recurrent_bias", {&d.width}));
  TF_RETURN_IF_ERROR(d.MergeShared());

  int i = 0;
  c->set_output(i++, d.State());
  c->set_output(i++, d.State());
  for (int n = 0; n < num_outputs; ++n) c->set_output(i++, d.Sequence());
  if (num_saved == 1) {
    c->set_output(i++, d.Gates());
    c->set_output(i++, d.Sequence());
    c->set_output(i++, d.Sequence());
  }
  return absl::OkStatus();
}

absl::Status GruGradShape(InferenceContext* c) {
  SequenceDims d(c, kGates);
  bool reset_after;
  int num_biases;
  int num_recurrent_biases;
  TF_RETURN_IF_ERROR(c->GetAttr("reset_after", &reset_after));
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_biases", &num_biases));
  TF_RETURN_IF_ERROR(
      CheckOptional(c, "num_recurrent_biases", &num_recurrent_biases));
  TF_RETURN_IF_ERROR(d.MergeKernel());
  TF_RETURN_IF_ERROR(MergeInput(c, "gates", {&d.batch, &d.steps, &d.width}));
  for (const char* name : {"previous_h", "candidate"}) {
    TF_RETURN_IF_ERROR(MergeInput(c, name, {&d.batch, &d.steps, &d.units}));
  }
  for (const char* name : {"grad_last_output", "grad_final_h"}) {
    TF_RETURN_IF_ERROR(MergeInput(c, name, {&d.batch, &d.units}));
  }
  TF_RETURN_IF_ERROR(
      MergeOptionalInput(c, "grad_outputs", {&d.batch, &d.steps, &d.units}));
  TF_RETURN_IF_ERROR(d.MergeShared());

  int i = 0;
  c->set_output(i++, d.Gates());
  c->set_output(i++,
                reset_after ? d.Sequence() : c->MakeShape({0, 0, d.units}));
  c->set_output(i++, d.State());
  if (num_biases == 1) c->set_output(i++, c->MakeShape({d.width}));
  if (num_recurrent_biases == 1) c->set_output(i++, c->MakeShape({d.width}));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EcoRNN>Gru")
    .Input("x: T")
    .Input("recurrent_kernel: T")
    .Input("initial_h: T")
    .Input("bias: num_biases * T")
    .Input("recurrent_bias: num_recurrent_biases * T")
    .Input("mask: num_masks * bool")
    .Input("reset: num_resets * bool")
    .Input("recurrent_dropout: num_recurrent_dropouts * T")
    .Input("kernel: num_kernels * T")
    .Output("last_output: T")
    .Output("final_h: T")
    .Output("outputs: num_outputs * T")
    .Output("gates: num_saved * T")
    .Output("previous_h: num_saved * T")
    .Output("candidate: num_saved * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_biases: int >= 0 = 0")
    .Attr("num_recurrent_biases: int >= 0 = 0")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("num_resets: int >= 0 = 0")
    .Attr("num_recurrent_dropouts: int >= 0 = 0")
    .Attr("num_kernels: int >= 0 = 0")
    .Attr("num_outputs: int >= 0 = 0")
    .Attr("num_saved: int >= 0 = 0")
    .Attr(ActivationAttribute("activation", "tanh"))
    .Attr(ActivationAttribute("recurrent_activation", "sigmoid"))
    .Attr("reset_after: bool = true")
    .Attr("reverse: bool = false")
    .Attr("zero_output_for_mask: bool = false")
    .SetShapeFn(GruShape)
    .Doc(R"doc(
A whole sequence of a fused GRU. B batch rows, T steps, U units.

x: (B, T, F) with a kernel; else (B, T, 3U), the time-parallel product of the
  inputs with the kernel, without bias. Gates z, r, h. In input time order, as
  are mask, reset and the saved tensors.
recurrent_kernel: (U, 3U).
initial_h: (B, U).
bias: none or one tensor (3U), of the input side.
recurrent_bias: none or one tensor (3U), with reset_after alone.
mask: none or one tensor (B, T); a step that is false is skipped: the state is
  carried over and the output repeats the one before (zero at first).
reset: none or one tensor (B, T); where true the state is set to zero before the
  step, masked or not.
recurrent_dropout: none or one tensor (B, 3, U) that multiplies h gate by gate.
kernel: none or one tensor (F, 3U), which multiplies x inside the op.
last_output: (B, U), the output of the last processed step.
final_h: (B, U).
outputs: num_outputs tensors (B, T, U), in processing order.
gates: num_saved tensors (B, T, 3U), for the gradient op.
previous_h: num_saved tensors (B, T, U), the state that entered each step.
candidate: num_saved tensors (B, T, U): with reset_after the candidate's
  recurrent sum, else the operand r * h of its product.
reset_after: whether the reset gate multiplies the recurrent product, not h.
reverse: process the steps from the last to the first.
zero_output_for_mask: skipped steps put out zero.
)doc");

REGISTER_OP("EcoRNN>GruGrad")
    .Input("gates: T")
    .Input("previous_h: T")
    .Input("candidate: T")
    .Input("recurrent_kernel: T")
    .Input("grad_last_output: T")
    .Input("grad_final_h: T")
    .Input("grad_outputs: num_outputs * T")
    .Input("mask: num_masks * bool")
    .Input("reset: num_resets * bool")
    .Input("recurrent_dropout: num_recurrent_dropouts * T")
    .Output("grad_gates: T")
    .Output("grad_candidate: T")
    .Output("grad_initial_h: T")
    .Output("grad_bias: num_biases * T")
    .Output("grad_recurrent_bias: num_recurrent_biases * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("num_outputs: int >= 0 = 0")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("num_resets: int >= 0 = 0")
    .Attr("num_recurrent_dropouts: int >= 0 = 0")
    .Attr("num_biases: int >= 0 = 0")
    .Attr("num_recurrent_biases: int >= 0 = 0")
    .Attr(ActivationAttribute("activation", "tanh"))
    .Attr(ActivationAttribute("recurrent_activation", "sigmoid"))
    .Attr("reset_after: bool = true")
    .Attr("reverse: bool = false")
    .Attr("zero_output_for_mask: bool = false")
    .SetShapeFn(GruGradShape)
    .Doc(R"doc(
The gradient of EcoRNN>Gru, from the tensors that it saved.

grad_gates: (B, T, 3U), the gradient of the pre-activations on the input side, so
  of gates_x; zero at masked steps. The recurrent kernel's gradient for z and r
  is the time-parallel product of previous_h with it.
grad_candidate: with reset_after (B, T, U), the gradient of the candidate's
  recurrent sum, which stands in grad_gates' place in that product; else empty,
  (0, 0, U): the product is that of the saved candidate with grad_gates.
grad_bias: num_biases tensors (3U).
grad_recurrent_bias: num_recurrent_biases tensors (3U).
)doc");

}  // namespace ecornn
