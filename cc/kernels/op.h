// The recurrent ops' kernels for any device: check, allocate, call an engine.
//
// A Runner is how a device's engine is called, made for each call:
//
//   explicit Runner(OpKernelContext*);
//   absl::Status Scratch(const Args&, size_t* bytes);  // working memory it
//   needs absl::Status Run(const Args&, void* scratch);
//
// where Args is ForwardArgs<S> or BackwardArgs<S>, S the engine's type. Their
// pointers, and the scratch, are memory of the kernel's device.
#ifndef TF_ECORNN_CC_KERNELS_OP_H_
#define TF_ECORNN_CC_KERNELS_OP_H_

#include "../ops/invalid.h"
#include "../recurrence/sequence.h"
#include "arguments.h"
#include "execution_record.h"
#include "tensorflow/core/framework/bfloat16.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace ecornn {

// The engine's name of a TensorFlow type.
template <class T>
struct StorageOf {
  using Type = T;
};
template <>
struct StorageOf<Eigen::half> {
  using Type = Half;
};
template <>
struct StorageOf<tensorflow::bfloat16> {
  using Type = BFloat16;
};

// Pointers into a call's tensors, by argument name; not null where the argument
// is there, though it be empty. The kernels' registration makes the types
// right, and CheckStateType that of the cell state. The first failure is kept
// and ends the rest.
class Arguments {
 public:
  explicit Arguments(tensorflow::OpKernelContext* context)
      : context_(context) {}

  template <class S>
  void Input(const char* name, const S** data) {
    const tensorflow::Tensor* tensor = nullptr;
    Note(context_->input(name, &tensor));
    *data = Data<const S>(tensor);
  }

  template <class S>
  void OptionalInput(const char* name, const S** data) {
    const tensorflow::Tensor* tensor = nullptr;
    Note(ecornn::OptionalInput(context_, name, &tensor));
    *data = Data<const S>(tensor);
  }

  template <class S>
  void Output(const char* name, const tensorflow::TensorShape& shape,
              S** data) {
    tensorflow::Tensor* tensor = nullptr;
    Note(context_->allocate_output(name, shape, &tensor));
    *data = Data<S>(tensor);
  }

  template <class S>
  void OptionalOutput(const char* name, const tensorflow::TensorShape& shape,
                      S** data) {
    tensorflow::Tensor* tensor = nullptr;
    tensorflow::OpOutputList list;
    Note(context_->output_list(name, &list));
    if (list.size() > 0) Note(list.allocate(0, shape, &tensor));
    *data = Data<S>(tensor);
  }

  // The first tensor of output `name`; in the memory of input 0 if that has the
  // shape and TensorFlow hands it over: nobody else needs it.
  template <class S>
  void OutputInPlaceOfFirstInput(const char* name,
                                 const tensorflow::TensorShape& shape,
                                 S** data) {
    int first = 0;
    int limit = 0;
    Note(context_->op_kernel().OutputRange(name, &first, &limit));
    tensorflow::Tensor* tensor = nullptr;
    if (first < limit) {
      Note(context_->forward_input_or_allocate_output({0}, first, shape,
                                                      &tensor));
    }
    *data = Data<S>(tensor);
  }

  void* Scratch(size_t bytes) {
    const tensorflow::TensorShape shape({static_cast<int64_t>(bytes)});
    Note(context_->allocate_temp(tensorflow::DT_INT8, shape, &scratch_));
    return status_.ok() ? scratch_.data() : nullptr;
  }

  const absl::Status& status() const { return status_; }

 private:
  template <class S, class T>
  static S* Data(T* tensor) {
    if (tensor == nullptr) return nullptr;
    // TensorFlow gives an empty tensor no memory.
    static double nothing;
    void* data = tensor->data();
    return static_cast<S*>(data == nullptr ? &nothing : data);
  }
  void Note(absl::Status status) { status_.Update(status); }

  tensorflow::OpKernelContext* const context_;
  absl::Status status_;
  tensorflow::Tensor scratch_;
};

// Every execution of an op, on any device, ends here.
template <class Runner, class Args>
absl::Status RunEngine(tensorflow::OpKernelContext* context,
                       Arguments& arguments, const Args& args) {
  TF_RETURN_IF_ERROR(arguments.status());
  const ExecutionRecord record(context);
  Runner runner(context);
  size_t bytes = 0;
  TF_RETURN_IF_ERROR(runner.Scratch(args, &bytes));
  void* scratch = arguments.Scratch(bytes);
  TF_RETURN_IF_ERROR(arguments.status());
  TF_RETURN_IF_ERROR(runner.Run(args, scratch));
  CountCall();
  record.Enter(args.sequence);
  return absl::OkStatus();
}

template <class Runner, class S, bool kLstm>
class ForwardOp : public tensorflow::OpKernel {
 public:
  explicit ForwardOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, kLstm, &sequence_));
    bool present;
    OP_REQUIRES_OK(context, ReadOptional(context, "num_outputs", &present));
    OP_REQUIRES_OK(context, ReadOptional(context, "num_saved", &present));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    ForwardArgs<S> args = {};
    args.sequence = sequence_;
    OP_REQUIRES_OK(context, CheckForward(context, &args.sequence));
    args.features = context->input(0).dim_size(2);
    Arguments a(context);
    Inputs(a, &args);
    Outputs(a, &args);
    OP_REQUIRES_OK(context, RunEngine<Runner>(context, a, args));
  }

 private:
  static void Inputs(Arguments& a, ForwardArgs<S>* args) {
    a.OptionalInput("kernel", &args->kernel);
    a.Input("x", args->kernel == nullptr ? &args->gates_x : &args->x);
    a.Input("recurrent_kernel", &args->recurrent_kernel);
    a.Input("initial_h", &args->initial_h);
    a.OptionalInput("bias", &args->bias);
    a.OptionalInput("mask", &args->mask);
    a.OptionalInput("reset", &args->reset);
    a.OptionalInput("recurrent_dropout", &args->recurrent_dropout);
    if (kLstm) {
      a.Input("initial_c", &args->initial_c);
    } else {
      a.OptionalInput("recurrent_bias", &args->recurrent_bias);
    }
  }

  static void Outputs(Arguments& a, ForwardArgs<S>* args) {
    const Sequence& s = args->sequence;
    const tensorflow::TensorShape state({s.batch, s.units});
    const tensorflow::TensorShape sequence({s.batch, s.steps, s.units});
    const tensorflow::TensorShape gates(
        {s.batch, s.steps, GateCount(s.cell) * s.units});
    a.Output("last_output", state, &args->last_output);
    a.Output("final_h", state, &args->final_h);
    a.OptionalOutput("outputs", sequence, &args->outputs);
    // The largest buffer last: TensorFlow's pool gives a request the smallest
    // free piece that holds it, and in this order every step finds the pieces
    // that the step before gave back. (The largest one first took twice its
    // size from the system: 8.8 units of B T U at U=256 B=64 T=400 where 6.7
    // do.)
    a.OptionalOutput("previous_h", sequence, &args->previous_h);
    if (kLstm) {
      a.Output("final_c", state, &args->final_c);
      a.OptionalOutput("previous_c", sequence, &args->previous_c);
    } else {
      a.OptionalOutput("candidate", sequence, &args->candidate);
    }
    if (args->kernel == nullptr) {
      a.OutputInPlaceOfFirstInput("gates", gates, &args->gates);
    } else {
      // A step's x is read again after its first gates have been stored.
      a.OptionalOutput("gates", gates, &args->gates);
    }
  }

  Sequence sequence_;
};

template <class Runner, class S, bool kLstm>
class BackwardOp : public tensorflow::OpKernel {
 public:
  explicit BackwardOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, kLstm, &sequence_));
    bool present;
    OP_REQUIRES_OK(context, ReadOptional(context, "num_biases", &present));
    if (!kLstm) {
      OP_REQUIRES_OK(context,
                     ReadOptional(context, "num_recurrent_biases", &present));
      OP_REQUIRES(
          context, !present || sequence_.cell != CellKind::kGru,
          InvalidArgument("recurrent biases go with reset_after alone"));
    }
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    BackwardArgs<S> args = {};
    args.sequence = sequence_;
    OP_REQUIRES_OK(context, CheckBackward(context, &args.sequence));
    Arguments a(context);
    Inputs(a, &args);
    Outputs(a, &args);
    OP_REQUIRES_OK(context, RunEngine<Runner>(context, a, args));
  }

 private:
  static void Inputs(Arguments& a, BackwardArgs<S>* args) {
    a.Input("gates", &args->gates);
    a.Input("recurrent_kernel", &args->recurrent_kernel);
    a.Input("grad_last_output", &args->grad_last_output);
    a.Input("grad_final_h", &args->grad_final_h);
    a.OptionalInput("grad_outputs", &args->grad_outputs);
    a.OptionalInput("mask", &args->mask);
    a.OptionalInput("reset", &args->reset);
    a.OptionalInput("recurrent_dropout", &args->recurrent_dropout);
    if (kLstm) {
      a.Input("previous_c", &args->previous_c);
      a.Input("grad_final_c", &args->grad_final_c);
    } else {
      a.Input("previous_h", &args->previous_h);
      a.Input("candidate", &args->candidate);
    }
  }

  static void Outputs(Arguments& a, BackwardArgs<S>* args) {
    const Sequence& s = args->sequence;
    const tensorflow::TensorShape state({s.batch, s.units});
    const tensorflow::TensorShape width({GateCount(s.cell) * s.units});
    const tensorflow::TensorShape gates(
        {s.batch, s.steps, GateCount(s.cell) * s.units});
    a.OutputInPlaceOfFirstInput("grad_gates", gates, &args->grad_gates);
    a.Output("grad_initial_h", state, &args->grad_initial_h);
    a.OptionalOutput("grad_bias", width, &args->grad_bias);
    if (kLstm) {
      a.Output("grad_initial_c", state, &args->grad_initial_c);
    } else {
      const bool split = s.cell == CellKind::kGruResetAfter;
      a.Output("grad_candidate",
               split ? tensorflow::TensorShape({s.batch, s.steps, s.units})
                     : tensorflow::TensorShape({0, 0, s.units}),
               &args->grad_candidate);
      a.OptionalOutput("grad_recurrent_bias", width,
                       &args->grad_recurrent_bias);
    }
  }

  Sequence sequence_;
};

}  // namespace ecornn

#define ECORNN_REGISTER_KERNEL(op, kernel, is_lstm, T, device, Runner) \
  REGISTER_KERNEL_BUILDER(                                             \
      Name(op).Device(device).TypeConstraint<T>("T"),                  \
      ecornn::kernel<Runner, ecornn::StorageOf<T>::Type, is_lstm>)

#define ECORNN_REGISTER_TYPE(T, device, Runner)                              \
  ECORNN_REGISTER_KERNEL("EcoRNN>Lstm", ForwardOp, true, T, device, Runner); \
  ECORNN_REGISTER_KERNEL("EcoRNN>LstmGrad", BackwardOp, true, T, device,     \
                         Runner);                                            \
  ECORNN_REGISTER_KERNEL("EcoRNN>Gru", ForwardOp, false, T, device, Runner); \
  ECORNN_REGISTER_KERNEL("EcoRNN>GruGrad", BackwardOp, false, T, device, Runner)

// Every op for every type: the same list on every device.
#define ECORNN_REGISTER_KERNELS(device, Runner)      \
  ECORNN_REGISTER_TYPE(float, device, Runner);       \
  ECORNN_REGISTER_TYPE(double, device, Runner);      \
  ECORNN_REGISTER_TYPE(Eigen::half, device, Runner); \
  ECORNN_REGISTER_TYPE(tensorflow::bfloat16, device, Runner)

#endif  // TF_ECORNN_CC_KERNELS_OP_H_
