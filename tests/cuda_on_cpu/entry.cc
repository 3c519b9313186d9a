#include "entry.h"

#include "../../cuda/engine.h"
#include "../../cuda/plan.h"

#ifdef ECORNN_CUDA_ON_CPU
#include "host_memory.h"
#endif

namespace {

using ecornn::BackwardArgs;
using ecornn::ForwardArgs;

constexpr int kInvalidValue = 1;

ecornn::Sequence SequenceOf(const EcornnCudaCall& call) {
  ecornn::Sequence s;
  s.cell = static_cast<ecornn::CellKind>(call.cell);
  s.batch = call.batch;
  s.steps = call.steps;
  s.units = call.units;
  s.reverse = call.reverse != 0;
  s.zero_output_for_mask = call.zero_output_for_mask != 0;
  s.activation = static_cast<ecornn::Activation>(call.activation);
  s.recurrent_activation =
      static_cast<ecornn::Activation>(call.recurrent_activation);
  return s;
}

ecornn::cuda::Settings SettingsOf(const EcornnCudaCall& call) {
  return {static_cast<int>(call.device), call.tensor_float_32 != 0,
          static_cast<ecornn::cuda::Path>(call.path)};
}

// Of `From`, whatever it holds, to the engine's type.
template <class T>
void Take(const void* from, T** to) {
  *to = static_cast<T*>(const_cast<void*>(from));
}

template <class S>
ForwardArgs<S> ArgsOf(const EcornnCudaForward& call) {
  ForwardArgs<S> args = {};
  args.sequence = SequenceOf(call.call);
  args.features = call.features;
  Take(call.gates_x, &args.gates_x);
  Take(call.x, &args.x);
  Take(call.kernel, &args.kernel);
  Take(call.recurrent_kernel, &args.recurrent_kernel);
  Take(call.bias, &args.bias);
  Take(call.recurrent_bias, &args.recurrent_bias);
  Take(call.initial_h, &args.initial_h);
  Take(call.initial_c, &args.initial_c);
  Take(call.mask, &args.mask);
  Take(call.reset, &args.reset);
  Take(call.recurrent_dropout, &args.recurrent_dropout);
  Take(call.last_output, &args.last_output);
  Take(call.final_h, &args.final_h);
  Take(call.final_c, &args.final_c);
  Take(call.outputs, &args.outputs);
  Take(call.gates, &args.gates);
  Take(call.previous_h, &args.previous_h);
  Take(call.previous_c, &args.previous_c);
  Take(call.candidate, &args.candidate);
  return args;
}

template <class S>
BackwardArgs<S> ArgsOf(const EcornnCudaBackward& call) {
  BackwardArgs<S> args = {};
  args.sequence = SequenceOf(call.call);
  Take(call.gates, &args.gates);
  Take(call.previous_h, &args.previous_h);
  Take(call.previous_c, &args.previous_c);
  Take(call.candidate, &args.candidate);
  Take(call.recurrent_kernel, &args.recurrent_kernel);
  Take(call.mask, &args.mask);
  Take(call.reset, &args.reset);
  Take(call.recurrent_dropout, &args.recurrent_dropout);
  Take(call.grad_last_output, &args.grad_last_output);
  Take(call.grad_final_h, &args.grad_final_h);
  Take(call.grad_final_c, &args.grad_final_c);
  Take(call.grad_outputs, &args.grad_outputs);
  Take(call.grad_gates, &args.grad_gates);
  Take(call.grad_candidate, &args.grad_candidate);
  Take(call.grad_initial_h, &args.grad_initial_h);
  Take(call.grad_initial_c, &args.grad_initial_c);
  Take(call.grad_bias, &args.grad_bias);
  Take(call.grad_recurrent_bias, &args.grad_recurrent_bias);
  return args;
}

#ifdef ECORNN_CUDA_ON_CPU

// Tells the emulation how large the arrays are, so that a kernel that takes
// more of one than there is will be caught.
class NamedArrays {
 public:
  explicit NamedArrays(const EcornnCudaCall& call)
      : gates_(call.cell == 0 ? 4 : 3),
        rows_(call.batch),
        row_steps_(call.batch * call.steps),
        units_(call.units) {}
  ~NamedArrays() { ecornn::emulation::ForgetArrays(); }

  template <class T>
  void Name(const T* array, int64_t count, const char* name) {
    ecornn::emulation::NameArray(array, count * sizeof(T), name);
  }

  template <class S>
  void NameAll(const ForwardArgs<S>& a) {
    Name(a.gates_x, row_steps_ * gates_ * units_, "gates_x");
    Name(a.x, row_steps_ * a.features, "x");
    Name(a.kernel, a.features * gates_ * units_, "kernel");
    Name(a.recurrent_kernel, units_ * gates_ * units_, "recurrent_kernel");
    Name(a.bias, gates_ * units_, "bias");
    Name(a.recurrent_bias, gates_ * units_, "recurrent_bias");
    Name(a.initial_h, rows_ * units_, "initial_h");
    Name(a.initial_c, rows_ * units_, "initial_c");
    Name(a.mask, row_steps_, "mask");
    Name(a.reset, row_steps_, "reset");
    Name(a.recurrent_dropout, rows_ * gates_ * units_, "recurrent_dropout");
    Name(a.last_output, rows_ * units_, "last_output");
    Name(a.final_h, rows_ * units_, "final_h");
    Name(a.final_c, rows_ * units_, "final_c");
    Name(a.outputs, row_steps_ * units_, "outputs");
    Name(a.gates, row_steps_ * gates_ * units_, "gates");
    Name(a.previous_h, row_steps_ * units_, "previous_h");
    Name(a.previous_c, row_steps_ * units_, "previous_c");
    Name(a.candidate, row_steps_ * units_, "candidate");
  }

  template <class S>
  void NameAll(const BackwardArgs<S>& a) {
    Name(a.gates, row_steps_ * gates_ * units_, "gates");
    Name(a.previous_h, row_steps_ * units_, "previous_h");
    Name(a.previous_c, row_steps_ * units_, "previous_c");
    Name(a.candidate, row_steps_ * units_, "candidate");
    Name(a.recurrent_kernel, units_ * gates_ * units_, "recurrent_kernel");
    Name(a.mask, row_steps_, "mask");
    Name(a.reset, row_steps_, "reset");
    Name(a.recurrent_dropout, rows_ * gates_ * units_, "recurrent_dropout");
    Name(a.grad_last_output, rows_ * units_, "grad_last_output");
    Name(a.grad_final_h, rows_ * units_, "grad_final_h");
    Name(a.grad_final_c, rows_ * units_, "grad_final_c");
    Name(a.grad_outputs, row_steps_ * units_, "grad_outputs");
    Name(a.grad_gates, row_steps_ * gates_ * units_, "grad_gates");
    Name(a.grad_candidate, row_steps_ * units_, "grad_candidate");
    Name(a.grad_initial_h, rows_ * units_, "grad_initial_h");
    Name(a.grad_initial_c, rows_ * units_, "grad_initial_c");
    Name(a.grad_bias, gates_ * units_, "grad_bias");
    Name(a.grad_recurrent_bias, gates_ * units_, "grad_recurrent_bias");
  }

 private:
  int64_t gates_;
  int64_t rows_;
  int64_t row_steps_;
  int64_t units_;
};

#else

class NamedArrays {
 public:
  explicit NamedArrays(const EcornnCudaCall&) {}
  template <class Args>
  void NameAll(const Args&) {}
};

#endif

// Calls use(arguments) with those of the call's type.
template <class Call, class Use>
int WithArgs(const Call& call, const Use& use) {
  switch (call.call.dtype) {
    case kEcornnCudaFloat:
      return use(ArgsOf<float>(call));
    case kEcornnCudaDouble:
      return use(ArgsOf<double>(call));
    case kEcornnCudaHalf:
      return use(ArgsOf<ecornn::Half>(call));
    case kEcornnCudaBFloat16:
      return use(ArgsOf<ecornn::BFloat16>(call));
    default:
      return kInvalidValue;
  }
}

template <class Call>
int ScratchOf(const Call& call, int64_t* bytes) {
  return WithArgs(call, [&](const auto& args) {
    size_t wanted = 0;
    const int error =
        ecornn::cuda::Scratch(args, SettingsOf(call.call), &wanted);
    *bytes = static_cast<int64_t>(wanted);
    return error;
  });
}

template <class Call>
int Run(const Call& call) {
  return WithArgs(call, [&](const auto& args) {
    NamedArrays names(call.call);
    names.NameAll(args);
    return ecornn::cuda::Run(args, SettingsOf(call.call), call.call.scratch,
                             call.call.stream);
  });
}

}  // namespace

int ecornn_cuda_forward_scratch(const EcornnCudaForward* call, int64_t* bytes) {
  return ScratchOf(*call, bytes);
}
int ecornn_cuda_forward(const EcornnCudaForward* call) { return Run(*call); }
int ecornn_cuda_backward_scratch(const EcornnCudaBackward* call,
                                 int64_t* bytes) {
  return ScratchOf(*call, bytes);
}
int ecornn_cuda_backward(const EcornnCudaBackward* call) { return Run(*call); }

const char* ecornn_cuda_error_text(int error) {
  return ecornn::cuda::ErrorText(error);
}

int64_t ecornn_cuda_forward_bytes() { return sizeof(EcornnCudaForward); }
int64_t ecornn_cuda_backward_bytes() { return sizeof(EcornnCudaBackward); }

int ecornn_cuda_plan(const EcornnPlanRequest* r, EcornnPlanResult* result) {
  using ecornn::cuda::Device;
  using ecornn::cuda::Path;
  using ecornn::cuda::Plan;
  using ecornn::cuda::PlanRequest;
  PlanRequest request = {};
  request.batch = r->batch;
  request.units = r->units;
  request.gates = static_cast<int>(r->gates);
  request.operands = static_cast<int>(r->operands);
  request.states = static_cast<int>(r->states);
  request.tile_units = static_cast<int>(r->tile_units);
  request.tile_rows = static_cast<int>(r->tile_rows);
  request.product_warps = static_cast<int>(r->product_warps);
  request.kept_chunks = static_cast<int>(r->kept_chunks);
  request.part_stride = static_cast<int>(r->part_stride);
  request.weight_padding = static_cast<int>(r->weight_padding);
  request.operand_bytes = static_cast<int>(r->operand_bytes);
  request.compute_bytes = static_cast<int>(r->compute_bytes);
  Device device = {};
  device.multiprocessors = static_cast<int>(r->multiprocessors);
  device.shared_per_block = static_cast<size_t>(r->shared_per_block);
  device.cooperative_launch = r->cooperative != 0;
  Plan plan = {};
  const int error = MakePlan(
      request, device, static_cast<Path>(r->path),
      [&](size_t shared_bytes, int* blocks) {
        // As a GPU's: by shared memory, by registers one or two.
        const int64_t fit = r->shared_per_multiprocessor /
                            static_cast<int64_t>(shared_bytes + 1024);
        *blocks =
            static_cast<int>(fit < r->most_resident ? fit : r->most_resident);
        return 0;
      },
      &plan);
  *result = {plan.persistent,
             plan.unit_slices,
             plan.group,
             plan.unit_blocks,
             plan.row_slices,
             plan.row_tiles,
             plan.chunks,
             plan.blocks,
             static_cast<int64_t>(plan.shared_bytes),
             static_cast<int64_t>(plan.scratch_bytes)};
  return error;
}
