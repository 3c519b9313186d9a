// The LSTM cell in the GPU engine's passes; cell/lstm_math.h has its formulas.
#ifndef TF_ECORNN_CUDA_LSTM_H_
#define TF_ECORNN_CUDA_LSTM_H_

#include "functions.h"

// After the math that it is written on.
#include "../cc/recurrence/cell/lstm_math.h"
#include "backward.h"
#include "forward.h"

namespace ecornn {
namespace cuda {

template <class S>
struct LstmForward {
  using C = ComputeType<S>;
  static constexpr int kGates = 4;
  static constexpr bool kHasCellState = true;
  static constexpr bool kSavesCandidate = false;
  static constexpr int kPhases = 1;
  static constexpr int kFirstGate[2] = {0, 0};
  static constexpr int kGateCount[2] = {4, 0};
  static constexpr int kStates = 1;  // c

  Functions functions;

  ECORNN_DEVICE explicit LstmForward(const ForwardArgs<S>& args)
      : functions(args.sequence) {}

  ECORNN_DEVICE void Start(const ForwardArgs<S>& args, int64_t i,
                           Pointer<C> states) const {
    const Sequence& s = args.sequence;
    states[0] = Widen(Global(args.initial_c, s.batch * s.units)[i]);
  }
  ECORNN_DEVICE void Restart(Pointer<C> states) const { states[0] = C(0); }

  template <int kPhase>
  ECORNN_DEVICE void Finish(const ForwardArgs<S>&, ForwardElement<S>* e,
                            Pointer<C> states) const {
    C gates[kGates];
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      gates[g] = e->sum[g] + e->side[g];
    }
    LstmGates(functions, gates, e->saved);
    e->previous_h = e->h;
    e->previous_c = states[0];
    const C next = LstmCellState(gates, e->previous_c);
    states[0] = next;
    e->h = gates[3] * functions.candidate.Apply(next);
  }

  template <int kPhase>
  ECORNN_DEVICE void Save(const ForwardArgs<S>& args,
                          const ForwardElement<S>& e) const {
    const int64_t count = args.sequence.batch * args.sequence.steps * e.units;
    const int64_t i = e.at * e.units + e.unit;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      Global(args.gates,
             count * kGates)[(e.at * kGates + g) * e.units + e.unit] =
          Narrow<S>(e.saved[g]);
    }
    Global(args.previous_h, count)[i] = Narrow<S>(e.previous_h);
    Global(args.previous_c, count)[i] = e.previous_c;
  }

  ECORNN_DEVICE void End(const ForwardArgs<S>& args, int64_t i,
                         Pointer<C> states) const {
    const Sequence& s = args.sequence;
    Global(args.final_c, s.batch * s.units)[i] = Narrow<S>(C(states[0]));
  }
};

template <class S>
struct LstmBackward {
  using C = ComputeType<S>;
  static constexpr int kGates = 4;
  static constexpr bool kHasCellState = true;
  static constexpr bool kSplitCandidate = false;
  static constexpr int kPhases = 1;
  static constexpr int kFirstGate[2] = {0, 0};
  static constexpr int kGateCount[2] = {4, 0};
  static constexpr int kStates = 1;  // the gradient of c

  Functions functions;

  ECORNN_DEVICE explicit LstmBackward(const BackwardArgs<S>& args)
      : functions(args.sequence) {}

  // Whether a phase finishes a gate.
  ECORNN_DEVICE static constexpr bool Publishes(int, int) { return true; }

  ECORNN_DEVICE void Start(const BackwardArgs<S>& args, int64_t i,
                           Pointer<C> states) const {
    const Sequence& s = args.sequence;
    states[0] = Widen(Global(args.grad_final_c, s.batch * s.units)[i]);
  }
  ECORNN_DEVICE void Restart(Pointer<C> states) const { states[0] = C(0); }

  // What the step reads of memory; ahead of the product.
  template <int kPhase>
  ECORNN_DEVICE void Load(const BackwardArgs<S>& args,
                          BackwardElement<S>* e) const {
    const int64_t count = args.sequence.batch * args.sequence.steps * e->units;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      e->saved[g] = Widen(
          Global(args.gates,
                 count * kGates)[(e->at * kGates + g) * e->units + e->unit]);
    }
    e->previous = Global(args.previous_c, count)[e->at * e->units + e->unit];
  }

  // From the gradient of the state that left, those of the gates: of the input
  // side in `grad`, and what the earlier step's product takes in `published`.
  template <int kPhase>
  ECORNN_DEVICE void Finish(BackwardElement<S>* e, Pointer<C> states) const {
    C gates[kGates];
    LstmRestore(functions, e->saved, gates);
    const C next = LstmCellState(gates, e->previous);
    states[0] = LstmGradient(functions, e->saved, gates, e->previous, next,
                             functions.candidate.Apply(next), e->grad_h,
                             C(states[0]), e->grad);
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      e->published[g] = e->grad[g];
    }
    e->direct = C(0);
  }

  ECORNN_DEVICE void End(const BackwardArgs<S>& args, int64_t i,
                         Pointer<C> states) const {
    const Sequence& s = args.sequence;
    Global(args.grad_initial_c, s.batch * s.units)[i] = Narrow<S>(C(states[0]));
  }
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_LSTM_H_
