// Definitions of EcoRNN>Lstm and EcoRNN>LstmGrad. Exported graphs freeze them:
// extend only by list inputs at the end whose length defaults to 0.
#include "attributes.h"
#include "shapes.h"

namespace ecornn {
namespace {

constexpr int kGates = 4;

absl::Status LstmShape(InferenceContext* c) {
  SequenceDims d(c, kGates);
  int num_outputs;
  int num_saved;
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_outputs", &num_outputs));
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_saved", &num_saved));
  TF_RETURN_IF_ERROR(CheckStateType(c));
  TF_RETURN_IF_ERROR(d.MergeKernel());
  TF_RETURN_IF_ERROR(d.MergeInputs());
  TF_RETURN_IF_ERROR(MergeInput(c, "initial_h", {&d.batch, &d.units}));
  TF_RETURN_IF_ERROR(MergeInput(c, "initial_c", {&d.batch, &d.units}));
  TF_RETURN_IF_ERROR(MergeOptionalInput(c, "bias", {&d.width}));
  TF_RETURN_IF_ERROR(d.MergeShared());

  int i = 0;
  for (; i < 3; ++i) c->set_output(i, d.State());
  for (int n = 0; n < num_outputs; ++n) c->set_output(i++, d.Sequence());
  if (num_saved == 1) {
    c->set_output(i++, d.Gates());
    c->set_output(i++, d.Sequence());
    c->set_output(i++, d.Sequence());
  }
  return absl::OkStatus();
}

absl::Status LstmGradShape(InferenceContext* c) {
  SequenceDims d(c, kGates);
  int num_biases;
  TF_RETURN_IF_ERROR(CheckOptional(c, "num_biases", &num_biases));
  TF_RETURN_IF_ERROR(CheckStateType(c));
  TF_RETURN_IF_ERROR(d.MergeKernel());
  TF_RETURN_IF_ERROR(MergeInput(c, "gates", {&d.batch, &d.steps, &d.width}));
  TF_RETURN_IF_ERROR(
      MergeInput(c, "previous_c", {&d.batch, &d.steps, &d.units}));
  for (const char* name :
       {"grad_last_output", "grad_final_h", "grad_final_c"}) {
    TF_RETURN_IF_ERROR(MergeInput(c, name, {&d.batch, &d.units}));
  }
  TF_RETURN_IF_ERROR(
      MergeOptionalInput(c, "grad_outputs", {&d.batch, &d.steps, &d.units}));
  TF_RETURN_IF_ERROR(d.MergeShared());

  c->set_output(0, d.Gates());
  c->set_output(1, d.State());
  c->set_output(2, d.State());
  if (num_biases == 1) c->set_output(3, c->MakeShape({d.width}));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EcoRNN>Lstm")
    .Input("x: T")
    .Input("recurrent_kernel: T")
    .Input("initial_h: T")
    .Input("initial_c: T")
    .Input("bias: num_biases * T")
    .Input("mask: num_masks * bool")
    .Input("reset: num_resets * bool")
    .Input("recurrent_dropout: num_recurrent_dropouts * T")
    .Input("kernel: num_kernels * T")
    .Output("last_output: T")
    .Output("final_h: T")
    .Output("final_c: T")
    .Output("outputs: num_outputs * T")
    .Output("gates: num_saved * T")
    .Output("previous_h: num_saved * T")
    .Output("previous_c: num_saved * state_type")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("state_type: {float, double} = DT_FLOAT")
    .Attr("num_biases: int >= 0 = 0")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("num_resets: int >= 0 = 0")
    .Attr("num_recurrent_dropouts: int >= 0 = 0")
    .Attr("num_kernels: int >= 0 = 0")
    .Attr("num_outputs: int >= 0 = 0")
    .Attr("num_saved: int >= 0 = 0")
    .Attr(ActivationAttribute("activation", "tanh"))
    .Attr(ActivationAttribute("recurrent_activation", "sigmoid"))
    .Attr("reverse: bool = false")
    .Attr("zero_output_for_mask: bool = false")
    .SetShapeFn(LstmShape)
    .Doc(R"doc(
A whole sequence of a fused LSTM. B batch rows, T steps, U units.

x: (B, T, F) with a kernel; else (B, T, 4U), the time-parallel product of the
  inputs with the kernel, without bias. Gates i, f, c, o. In input time order, as
  are mask, reset and the saved tensors.
recurrent_kernel: (U, 4U).
initial_h: (B, U).
initial_c: (B, U).
bias: none or one tensor (4U).
mask: none or one tensor (B, T); a step that is false is skipped: the state is
  carried over and the output repeats the one before (zero at first).
reset: none or one tensor (B, T); where true the state is set to zero before the
  step, masked or not.
recurrent_dropout: none or one tensor (B, 4, U) that multiplies h gate by gate.
kernel: none or one tensor (F, 4U), which multiplies x inside the op.
last_output: (B, U), the output of the last processed step.
final_h: (B, U).
final_c: (B, U).
outputs: num_outputs tensors (B, T, U), in processing order.
gates: num_saved tensors (B, T, 4U), for the gradient op.
previous_h: num_saved tensors (B, T, U), the state that entered each step.
previous_c: num_saved tensors (B, T, U).
reverse: process the steps from the last to the first.
zero_output_for_mask: skipped steps put out zero.
)doc");

REGISTER_OP("EcoRNN>LstmGrad")
    .Input("gates: T")
    .Input("previous_c: state_type")
    .Input("recurrent_kernel: T")
    .Input("grad_last_output: T")
    .Input("grad_final_h: T")
    .Input("grad_final_c: T")
    .Input("grad_outputs: num_outputs * T")
    .Input("mask: num_masks * bool")
    .Input("reset: num_resets * bool")
    .Input("recurrent_dropout: num_recurrent_dropouts * T")
    .Output("grad_gates: T")
    .Output("grad_initial_h: T")
    .Output("grad_initial_c: T")
    .Output("grad_bias: num_biases * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("state_type: {float, double} = DT_FLOAT")
    .Attr("num_outputs: int >= 0 = 0")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("num_resets: int >= 0 = 0")
    .Attr("num_recurrent_dropouts: int >= 0 = 0")
    .Attr("num_biases: int >= 0 = 0")
    .Attr(ActivationAttribute("activation", "tanh"))
    .Attr(ActivationAttribute("recurrent_activation", "sigmoid"))
    .Attr("reverse: bool = false")
    .Attr("zero_output_for_mask: bool = false")
    .SetShapeFn(LstmGradShape)
    .Doc(R"doc(
The gradient of EcoRNN>Lstm, from the tensors that it saved.

grad_gates: (B, T, 4U), the gradient of the pre-activations, so of x W;
  zero
  at masked steps. The recurrent kernel's gradient is the time-parallel product
  of previous_h with it.
grad_bias: num_biases tensors (4U).
)doc");

}  // namespace ecornn
