// The LSTM cell in the CPU engine's passes; lstm_math.h has its formulas.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_LSTM_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_LSTM_H_

// The target's own math, before what is written on it.
#include "../vector_math.h"

#include "lstm_math.h"
#include "rows.h"

namespace ecornn {
namespace ECORNN_TARGET {

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
      this->Save(row.gates + g * this->units + u, saved[g], lanes);
    }
  }

  template <class Lanes>
  ECORNN_INLINE void Update(const ForwardRow<S>& row, const V (&gates)[kGates],
                            int64_t u, Lanes lanes) const {
    const V c = lanes.Load(row.c + u);
    const V next = LstmCellState(gates, c);
    lanes.Store(row.c + u, next);
    if (row.gates != nullptr) {
      this->Save(row.previous_h + u, lanes.Load(row.h + u), lanes);
      this->Save(row.previous_c + u, c, lanes);
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
