// Calls of the engine on a problem: outputs and scratch are poisoned before, so
// that what the engine leaves unwritten, or reads before it wrote it, shows.
#ifndef TF_ECORNN_TESTS_ENGINE_ENGINE_RUNS_H_
#define TF_ECORNN_TESTS_ENGINE_ENGINE_RUNS_H_

#include <vector>

#include "../../cc/recurrence/engine.h"
#include "../../cc/recurrence/solo_team.h"
#include "array.h"
#include "problem.h"

namespace ecornn {
namespace test {

inline constexpr unsigned char kNanBytes = 0xff;

struct ForwardChoice {
  bool outputs = true;
  bool saves = true;
  bool in_place = false;  // gates in the memory of gates_x
  unsigned char poison = kNanBytes;
  bool null_empty = false;  // pass null for arrays without elements
};

struct BackwardChoice {
  bool bias = true;
  bool in_place = false;  // grad_gates in the memory of gates
  unsigned char poison = kNanBytes;
  bool null_empty = false;  // pass null for arrays without elements
};

template <class S>
struct ForwardRun {
  using C = typename ForwardArgs<S>::C;
  Array<S> last_output;  // (B, U)
  Array<S> final_h;      // (B, U)
  Array<S> final_c;      // (B, U)
  Array<S> outputs;      // ? (B, T, U)
  Array<S> gates;        // ? (B, T, 4U)
  Array<S> previous_h;   // ? (B, T, U)
  Array<C> previous_c;   // ? (B, T, U)
};

template <class S>
struct BackwardRun {
  Array<S> grad_gates;      // (B, T, 4U)
  Array<S> grad_initial_h;  // (B, U)
  Array<S> grad_initial_c;  // (B, U)
  Array<S> grad_bias;       // ? (4U)
};

// The instruction sets that this machine can run.
inline std::vector<Isa> AvailableIsas() {
  std::vector<Isa> available;
  for (Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                  Isa::kAmxBf16}) {
    if (IsaAvailable(isa)) available.push_back(isa);
  }
  return available;
}

template <class T>
Array<T> Poisoned(const char* name, std::vector<int64_t> shape,
                  unsigned char poison) {
  Array<T> array(name, std::move(shape));
  array.FillBytes(poison);
  return array;
}

// An array's elements under another name.
template <class T>
Array<T> Renamed(const char* name, const Array<T>& from,
                 std::vector<int64_t> shape) {
  Array<T> array(name, std::move(shape));
  std::memcpy(array.data(), from.data(), from.size() * sizeof(T));
  return array;
}

// The pointer to hand over for an array.
struct DataOf {
  bool null_empty;

  template <class T>
  T* operator()(Array<T>& array) const {
    return null_empty && array.size() == 0 ? nullptr : array.data();
  }
  template <class T>
  const T* operator()(const Array<T>& array) const {
    return null_empty && array.size() == 0 ? nullptr : array.data();
  }
};

template <class S>
ForwardRun<S> RunForward(Isa isa, const Problem<S>& p, Team& team,
                         const ForwardChoice& choice = {}) {
  using C = typename ForwardArgs<S>::C;
  const int64_t b = p.spec.batch, t = p.spec.steps, u = p.spec.units;
  ForwardRun<S> run;
  run.last_output = Poisoned<S>("last_output", {b, u}, choice.poison);
  run.final_h = Poisoned<S>("final_h", {b, u}, choice.poison);
  run.final_c = Poisoned<S>("final_c", {b, u}, choice.poison);
  if (choice.outputs) {
    run.outputs = Poisoned<S>("outputs", {b, t, u}, choice.poison);
  }
  if (choice.saves) {
    const std::vector<int64_t> shape = {b, t, kGates * u};
    run.gates = choice.in_place ? Renamed("gates", p.gates_x, shape)
                                : Poisoned<S>("gates", shape, choice.poison);
    run.previous_h = Poisoned<S>("previous_h", {b, t, u}, choice.poison);
    run.previous_c = Poisoned<C>("previous_c", {b, t, u}, choice.poison);
  }
  const DataOf pointer = {choice.null_empty};
  ForwardArgs<S> args = {};
  args.sequence = p.sequence();
  args.gates_x =
      choice.saves && choice.in_place ? pointer(run.gates) : pointer(p.gates_x);
  args.recurrent_kernel = pointer(p.recurrent_kernel);
  args.bias = pointer(p.bias);
  args.initial_h = pointer(p.initial_h);
  args.initial_c = pointer(p.initial_c);
  args.mask = pointer(p.mask);
  args.reset = pointer(p.reset);
  args.recurrent_dropout = pointer(p.recurrent_dropout);
  args.last_output = pointer(run.last_output);
  args.final_h = pointer(run.final_h);
  args.final_c = pointer(run.final_c);
  args.outputs = pointer(run.outputs);
  args.gates = pointer(run.gates);
  args.previous_h = pointer(run.previous_h);
  args.previous_c = pointer(run.previous_c);
  const Engine<S>& engine = EngineFor<S>(isa);
  const Scratch scratch(engine.forward_scratch(args, team.size()),
                        choice.poison);
  engine.forward(args, scratch.data(), team);
  return run;
}

template <class S>
BackwardRun<S> RunBackward(Isa isa, const Problem<S>& p,
                           const ForwardRun<S>& forward, Team& team,
                           const BackwardChoice& choice = {}) {
  const int64_t b = p.spec.batch, t = p.spec.steps, u = p.spec.units;
  const std::vector<int64_t> shape = {b, t, kGates * u};
  BackwardRun<S> run;
  run.grad_gates = choice.in_place
                       ? Renamed("grad_gates", forward.gates, shape)
                       : Poisoned<S>("grad_gates", shape, choice.poison);
  run.grad_initial_h = Poisoned<S>("grad_initial_h", {b, u}, choice.poison);
  run.grad_initial_c = Poisoned<S>("grad_initial_c", {b, u}, choice.poison);
  if (choice.bias) {
    run.grad_bias = Poisoned<S>("grad_bias", {kGates * u}, choice.poison);
  }
  const DataOf pointer = {choice.null_empty};
  BackwardArgs<S> args = {};
  args.sequence = p.sequence();
  args.gates = pointer(choice.in_place ? run.grad_gates : forward.gates);
  args.previous_c = pointer(forward.previous_c);
  args.recurrent_kernel = pointer(p.recurrent_kernel);
  args.mask = pointer(p.mask);
  args.reset = pointer(p.reset);
  args.recurrent_dropout = pointer(p.recurrent_dropout);
  args.grad_last_output = pointer(p.grad_last_output);
  args.grad_final_h = pointer(p.grad_final_h);
  args.grad_final_c = pointer(p.grad_final_c);
  args.grad_outputs = pointer(p.grad_outputs);
  args.grad_gates = pointer(run.grad_gates);
  args.grad_initial_h = pointer(run.grad_initial_h);
  args.grad_initial_c = pointer(run.grad_initial_c);
  args.grad_bias = pointer(run.grad_bias);
  const Engine<S>& engine = EngineFor<S>(isa);
  const Scratch scratch(engine.backward_scratch(args, team.size()),
                        choice.poison);
  engine.backward(args, scratch.data(), team);
  return run;
}

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_ENGINE_RUNS_H_
