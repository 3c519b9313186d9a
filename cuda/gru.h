// The GRU cell in the GPU engine's passes; cell/gru_math.h has its formulas.
#ifndef TF_ECORNN_CUDA_GRU_H_
#define TF_ECORNN_CUDA_GRU_H_

#include "functions.h"

// After the math that it is written on.
#include "../cc/recurrence/cell/gru_math.h"
#include "backward.h"
#include "forward.h"

namespace ecornn {
namespace cuda {

template <class S, bool kResetAfter>
struct GruForward {
  using C = ComputeType<S>;
  static constexpr int kGates = 3;
  static constexpr bool kHasCellState = false;
  static constexpr bool kSavesCandidate = true;
  // Reset after: all sums are of h. Else the candidate's needs r of all units.
  static constexpr int kPhases = kResetAfter ? 1 : 2;
  static constexpr int kFirstGate[2] = {0, 2};
  static constexpr int kGateCount[2] = {kResetAfter ? 3 : 2, 1};
  // Between the phases: the update gate.
  static constexpr int kStates = kResetAfter ? 0 : 1;

  Functions functions;

  ECORNN_DEVICE explicit GruForward(const ForwardArgs<S>& args)
      : functions(args.sequence) {}

  ECORNN_DEVICE void Start(const ForwardArgs<S>&, int64_t, Pointer<C>) const {}
  ECORNN_DEVICE void Restart(Pointer<C>) const {}
  ECORNN_DEVICE void End(const ForwardArgs<S>&, int64_t, Pointer<C>) const {}

  template <int kPhase>
  ECORNN_DEVICE void Finish(const ForwardArgs<S>& args, ForwardElement<S>* e,
                            Pointer<C> states) const {
    if constexpr (kResetAfter) {
      FinishResetAfter(args, e);
    } else if constexpr (kPhase == 0) {
      FinishGates(args, e, states);
    } else {
      FinishCandidate(e, states);
    }
  }

  template <int kPhase>
  ECORNN_DEVICE void Save(const ForwardArgs<S>& args,
                          const ForwardElement<S>& e) const {
    const int64_t count = args.sequence.batch * args.sequence.steps * e.units;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      if (!kResetAfter && (g == 2) != (kPhase == 1)) continue;
      Global(args.gates,
             count * kGates)[(e.at * kGates + g) * e.units + e.unit] =
          Narrow<S>(e.saved[g]);
    }
    if (kPhase == 1) return;
    const int64_t i = e.at * e.units + e.unit;
    Global(args.previous_h, count)[i] = Narrow<S>(e.previous_h);
    Global(args.candidate, count)[i] = Narrow<S>(e.candidate);
  }

 private:
  ECORNN_DEVICE void FinishResetAfter(const ForwardArgs<S>& args,
                                      ForwardElement<S>* e) const {
    const C xz = e->sum[0] + (e->side[0] + RecurrentBias(args, *e, 0));
    const C xr = e->sum[1] + (e->side[1] + RecurrentBias(args, *e, 1));
    const C z = functions.gate.Apply(xz);
    const C r = functions.gate.Apply(xr);
    const C sn = e->sum[2] + RecurrentBias(args, *e, 2);
    const C xn = Fma(r, sn, e->side[2]);
    const C n = functions.candidate.Apply(xn);
    e->saved[0] = functions.gate.Save(xz, z);
    e->saved[1] = functions.gate.Save(xr, r);
    e->saved[2] = functions.candidate.Save(xn, n);
    e->previous_h = e->h;
    e->candidate = sn;
    e->h = GruBlend(z, e->h, n);
  }

  ECORNN_DEVICE void FinishGates(const ForwardArgs<S>& args,
                                 ForwardElement<S>* e,
                                 Pointer<C> states) const {
    const C xz = e->sum[0] + e->side[0];
    const C xr = e->sum[1] + e->side[1];
    const C z = functions.gate.Apply(xz);
    const C r = functions.gate.Apply(xr);
    C h = e->h;
    if (args.recurrent_dropout != nullptr) {
      h *= Widen(Global(args.recurrent_dropout,
                        args.sequence.batch * kGates *
                            e->units)[e->dropout + 2 * e->units + e->unit]);
    }
    states[0] = z;
    e->inner = r * h;
    e->saved[0] = functions.gate.Save(xz, z);
    e->saved[1] = functions.gate.Save(xr, r);
    e->previous_h = e->h;
    e->candidate = e->inner;
  }

  ECORNN_DEVICE void FinishCandidate(ForwardElement<S>* e,
                                     Pointer<C> states) const {
    const C xn = e->sum[2] + e->side[2];
    const C n = functions.candidate.Apply(xn);
    e->saved[2] = functions.candidate.Save(xn, n);
    e->h = GruBlend(C(states[0]), e->h, n);
  }

  ECORNN_DEVICE C RecurrentBias(const ForwardArgs<S>& args,
                                const ForwardElement<S>& e, int gate) const {
    if (args.recurrent_bias == nullptr) return C(0);
    return Widen(
        Global(args.recurrent_bias, kGates * e.units)[gate * e.units + e.unit]);
  }
};

template <class S, bool kResetAfter>
struct GruBackward {
  using C = ComputeType<S>;
  static constexpr int kGates = 3;
  static constexpr bool kHasCellState = false;
  // The candidate's gradient differs between the input and the recurrent side.
  static constexpr bool kSplitCandidate = kResetAfter;
  // Without reset after, h reached the candidate through r * h, whose gradient
  // is the second phase's product.
  static constexpr int kPhases = kResetAfter ? 1 : 2;
  static constexpr int kFirstGate[2] = {0, 2};
  static constexpr int kGateCount[2] = {kResetAfter ? 3 : 2, 1};
  static constexpr int kStates = 0;

  Functions functions;

  ECORNN_DEVICE explicit GruBackward(const BackwardArgs<S>& args)
      : functions(args.sequence) {}

  // Whether a phase finishes a gate.
  ECORNN_DEVICE static constexpr bool Publishes(int phase, int gate) {
    return kResetAfter || (gate == 1) == (phase == 1);
  }

  ECORNN_DEVICE void Start(const BackwardArgs<S>&, int64_t, Pointer<C>) const {}
  ECORNN_DEVICE void Restart(Pointer<C>) const {}
  ECORNN_DEVICE void End(const BackwardArgs<S>&, int64_t, Pointer<C>) const {}

  // What the phase reads of memory; ahead of the product.
  template <int kPhase>
  ECORNN_DEVICE void Load(const BackwardArgs<S>& args,
                          BackwardElement<S>* e) const {
    const int64_t count = args.sequence.batch * args.sequence.steps * e->units;
    const int64_t i = e->at * e->units + e->unit;
    const auto gates = Global(args.gates, count * kGates);
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      if (!Publishes(kPhase, g)) continue;
      e->saved[g] = Widen(gates[(e->at * kGates + g) * e->units + e->unit]);
    }
    e->previous = Widen(Global(args.previous_h, count)[i]);
    if (kResetAfter) e->candidate = Widen(Global(args.candidate, count)[i]);
  }

  template <int kPhase>
  ECORNN_DEVICE void Finish(BackwardElement<S>* e, Pointer<C>) const {
    if constexpr (kPhase == 0) {
      FinishState(e);
    } else {
      FinishOperand(e);
    }
  }

 private:
  ECORNN_DEVICE void FinishState(BackwardElement<S>* e) const {
    e->direct =
        GruStateGradient(functions, e->saved[0], e->saved[2], e->previous,
                         e->grad_h, e->grad[0], e->grad[2]);
    e->published[0] = e->grad[0];
    e->published[2] = e->grad[2];
    if constexpr (kResetAfter) {
      const C r = functions.gate.Restore(e->saved[1]);
      e->grad[1] =
          GruResetGradient(functions, e->saved[1], r, e->candidate, e->grad[2]);
      e->published[1] = e->grad[1];
      e->published[2] = e->grad[2] * r;
    }
  }

  // From the gradient of r * h, dropout applied.
  ECORNN_DEVICE void FinishOperand(BackwardElement<S>* e) const {
    const C r = functions.gate.Restore(e->saved[1]);
    e->grad[1] =
        GruResetGradient(functions, e->saved[1], r, e->previous, e->grad_h);
    e->published[1] = e->grad[1];
    e->direct = e->grad_h * r;
  }
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_GRU_H_
