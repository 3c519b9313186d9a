// The LSTM cell (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997,
// with the forget gate of Gers et al., 2000). Gates in Keras's order i, f, c,
// o.
//
//   i, f, o = gate(z_i), gate(z_f), gate(z_o)      g = candidate(z_c)
//   c' = f * c + i * g                             h' = o * candidate(c')
//
// The step and its derivative are written on any type V with arithmetic and the
// functions of a policy pair: a vector on the CPU, a scalar elsewhere.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_LSTM_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_LSTM_H_

#include "../activation_math.h"
#include "rows.h"

namespace ecornn {
namespace ECORNN_TARGET {

// The gates of one element: pre-activations in `z`, turned into activations;
// `saved` gets what the backward pass needs of them.
template <class V, class Functions>
ECORNN_INLINE void LstmGates(const Functions& f, V (&z)[4], V (&saved)[4]) {
  const V input = f.gate.Apply(z[0]);
  const V forget = f.gate.Apply(z[1]);
  const V fresh = f.candidate.Apply(z[2]);
  const V output = f.gate.Apply(z[3]);
  saved[0] = f.gate.Save(z[0], input);
  saved[1] = f.gate.Save(z[1], forget);
  saved[2] = f.candidate.Save(z[2], fresh);
  saved[3] = f.gate.Save(z[3], output);
  z[0] = input;
  z[1] = forget;
  z[2] = fresh;
  z[3] = output;
}

// c', from the activated gates and c.
template <class V>
ECORNN_INLINE V LstmCellState(const V (&gates)[4], V c) {
  return Fma(gates[1], c, gates[0] * gates[2]);
}

// The activated gates again, from what LstmGates saved.
template <class V, class Functions>
ECORNN_INLINE void LstmRestore(const Functions& f, const V (&saved)[4],
                               V (&gates)[4]) {
  gates[0] = f.gate.Restore(saved[0]);
  gates[1] = f.gate.Restore(saved[1]);
  gates[2] = f.candidate.Restore(saved[2]);
  gates[3] = f.gate.Restore(saved[3]);
}

// The derivative. `c` entered the step, `next` left it and `squashed` is its
// activation; `grad_h` and `grad_c` are the gradients of what left. Puts the
// gradients of the pre-activations into `grad` and returns that of `c`.
template <class V, class Functions>
ECORNN_INLINE V LstmGradient(const Functions& f, const V (&saved)[4],
                             const V (&gates)[4], V c, V next, V squashed,
                             V grad_h, V grad_c, V (&grad)[4]) {
  const V slope = f.candidate.Slope(f.candidate.Save(next, squashed), squashed);
  const V total_c = Fma(grad_h * gates[3], slope, grad_c);
  grad[0] = total_c * gates[2] * f.gate.Slope(saved[0], gates[0]);
  grad[1] = total_c * c * f.gate.Slope(saved[1], gates[1]);
  grad[2] = total_c * gates[0] * f.candidate.Slope(saved[2], gates[2]);
  grad[3] = grad_h * squashed * f.gate.Slope(saved[3], gates[3]);
  return total_c * gates[1];
}

// The cell in the CPU engine's forward pass.
template <class Storage, class FunctionPair>
struct LstmForward : ForwardCell<Storage> {
  using S = Storage;
  using V = typename ForwardCell<S>::V;
  static constexpr int kGates = 4;
  static constexpr bool kHasCellState = true;
  static constexpr bool kSavesCandidate = false;
  // Every gate's operand is h: one phase.
  static constexpr int kPhases = 1;
  static constexpr int kFirstGate[kPhases] = {0};
  static constexpr int kGateCount[kPhases] = {4};
  // A tile's rows go through one part after the other: a part's chain of
  // dependent operations is short enough for several rows to be under way.
  static constexpr int kParts[kPhases] = {2};
  static constexpr int kWorkRows = 0;

  FunctionPair functions;

  // Finishes units [u, u + lanes) of a row from its recurrent sums, which part
  // 0 replaces by the activated gates, and the products of x.
  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void Finish(const ForwardRow<S>& row, V (&z)[kGates],
                            const V (&x)[kGates], int64_t u,
                            Lanes lanes) const {
    if (kPart == 0) {
      Activate(row, z, x, u, lanes);
    } else {
      Update(row, z, u, lanes);
    }
  }

 private:
  template <class Lanes>
  ECORNN_INLINE void Activate(const ForwardRow<S>& row, V (&z)[kGates],
                              const V (&x)[kGates], int64_t u,
                              Lanes lanes) const {
    V saved[kGates];
    for (int g = 0; g < kGates; ++g) {
      z[g] += this->InputSide(row, x[g], g, u, lanes);
    }
    LstmGates(functions, z, saved);
    if (row.gates == nullptr) return;
    for (int g = 0; g < kGates; ++g) {
      lanes.Store(row.gates + g * this->units + u, saved[g]);
    }
  }

  template <class Lanes>
  ECORNN_INLINE void Update(const ForwardRow<S>& row, const V (&gates)[kGates],
                            int64_t u, Lanes lanes) const {
    const V c = lanes.Load(row.c + u);
    const V next = LstmCellState(gates, c);
    lanes.Store(row.c + u, next);
    if (row.gates != nullptr) {
      lanes.Store(row.previous_h + u, lanes.Load(row.h + u));
      lanes.Store(row.previous_c + u, c);
    }
    this->template StoreState<kGates>(
        row, u, gates[3] * functions.candidate.Apply(next), lanes);
  }
};

// The cell in the backward pass.
template <class Storage, class FunctionPair>
struct LstmBackward : BackwardCell<Storage> {
  using S = Storage;
  using V = typename BackwardCell<S>::V;
  static constexpr int kGates = 4;
  static constexpr bool kHasCellState = true;
  static constexpr bool kSplitCandidate = false;
  static constexpr bool kHasDirect = false;
  // h entered every gate's product.
  static constexpr int kPhases = 1;
  static constexpr int kFirstGate[kPhases] = {0};
  static constexpr int kGateCount[kPhases] = {4};
  static constexpr int kParts[kPhases] = {2};

  FunctionPair functions;

  // Turns `grad`, the gradient of the state that left the step, units [u, u +
  // lanes), into those of the pre-activations. Part 0 leaves in `spare` what
  // part 1 takes up.
  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void Finish(const BackwardRow<S>& row, V grad, V& spare,
                            int64_t u, Lanes lanes) const {
    V saved[kGates];
    V gates[kGates];
    for (int g = 0; g < kGates; ++g) {
      saved[g] = lanes.Load(row.gates + g * this->units + u);
    }
    LstmRestore(functions, saved, gates);
    const V c = lanes.Load(row.previous_c + u);
    // The forward pass's operation, so its bits.
    const V next = LstmCellState(gates, c);
    if (kPart == 0) {
      spare = functions.candidate.Apply(next);
      return;
    }
    V z[kGates];
    const V grad_c = LstmGradient(functions, saved, gates, c, next, spare, grad,
                                  lanes.Load(row.grad_c + u), z);
    lanes.Store(row.grad_c + u, grad_c);
    for (int g = 0; g < kGates; ++g) {
      this->StoreGradient(row, g, u, z[g], lanes);
    }
  }
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_CELL_LSTM_H_
