// The GRU cell in the CPU engine's passes; gru_math.h has its formulas.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_GRU_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_GRU_H_

// The target's own math, before what is written on it.
#include "../vector_math.h"

#include "gru_math.h"
#include "rows.h"

namespace ecornn {
namespace ECORNN_TARGET {

// The cell in the CPU engine's forward pass.
template <class Storage, class FunctionPair, bool kResetAfter>
struct GruForward : ForwardCell<Storage> {
  using S = Storage;
  using V = typename ForwardCell<S>::V;
  static constexpr int kGates = 3;
  static constexpr bool kHasCellState = false;
  static constexpr bool kSavesCandidate = true;
  // Reset after: all sums are of h. Else the candidate's needs r of all units.
  static constexpr int kPhases = kResetAfter ? 1 : 2;
  static constexpr int kFirstGate[2] = {0, 2};
  static constexpr int kGateCount[2] = {kResetAfter ? 3 : 2, 1};
  // A tile's rows go through one part after the other; see the LSTM's.
  static constexpr int kParts[2] = {kResetAfter ? 2 : 1, 1};

  FunctionPair functions;

  // Finishes units [u, u + lanes) of a row from its recurrent sums, of which
  // part 0 replaces those of z and r by the activated gates, and the products
  // of x.
  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void Finish(const ForwardRow<S>& row,
                            V (&sum)[kGateCount[kPhase]],
                            const V (&x)[kGateCount[kPhase]], int64_t u,
                            Lanes lanes) const {
    if constexpr (kResetAfter) {
      if (kPart == 0) {
        ActivateResetAfter(row, sum, x, u, lanes);
      } else {
        FinishResetAfter(row, sum, x, u, lanes);
      }
    } else if constexpr (kPhase == 0) {
      FinishGates(row, sum, x, u, lanes);
    } else {
      FinishCandidate(row, sum, x, u, lanes);
    }
  }

 private:
  template <class Lanes>
  ECORNN_INLINE void SaveGate(S* row, int64_t u, V x, V y, int gate,
                              Lanes lanes) const {
    const V saved =
        gate == 2 ? functions.candidate.Save(x, y) : functions.gate.Save(x, y);
    this->Save(row + gate * this->units + u, saved, lanes);
  }

  template <class Lanes>
  ECORNN_INLINE V RecurrentBias(int gate, int64_t u, Lanes lanes) const {
    return lanes.Load(this->recurrent_bias + gate * this->units + u);
  }

  template <class Lanes>
  ECORNN_INLINE void ActivateResetAfter(const ForwardRow<S>& row, V (&sum)[3],
                                        const V (&x)[3], int64_t u,
                                        Lanes lanes) const {
    for (int g = 0; g < 2; ++g) {
      const V z = sum[g] + (this->InputSide(row, x[g], g, u, lanes) +
                            RecurrentBias(g, u, lanes));
      sum[g] = functions.gate.Apply(z);
      if (row.gates != nullptr) SaveGate(row.gates, u, z, sum[g], g, lanes);
    }
  }

  template <class Lanes>
  ECORNN_INLINE void FinishResetAfter(const ForwardRow<S>& row,
                                      const V (&sum)[3], const V (&x)[3],
                                      int64_t u, Lanes lanes) const {
    const V sn = sum[2] + RecurrentBias(2, u, lanes);
    const V xn = Fma(sum[1], sn, this->InputSide(row, x[2], 2, u, lanes));
    const V n = functions.candidate.Apply(xn);
    const V h = lanes.Load(row.h + u);
    if (row.gates != nullptr) {
      SaveGate(row.gates, u, xn, n, 2, lanes);
      this->Save(row.previous_h + u, h, lanes);
      this->Save(row.candidate + u, sn, lanes);
    }
    this->template StoreState<kGates>(row, u, GruBlend(sum[0], h, n), lanes);
  }

  template <class Lanes>
  ECORNN_INLINE void FinishGates(const ForwardRow<S>& row, const V (&sum)[2],
                                 const V (&x)[2], int64_t u,
                                 Lanes lanes) const {
    const V xz = sum[0] + this->InputSide(row, x[0], 0, u, lanes);
    const V xr = sum[1] + this->InputSide(row, x[1], 1, u, lanes);
    const V z = functions.gate.Apply(xz);
    const V r = functions.gate.Apply(xr);
    V operand = r * lanes.Load(row.h + u);
    if (row.dropout != nullptr) {
      operand = r * lanes.Load(row.operands + 2 * this->operand_stride + u);
    }
    lanes.Store(row.update_gate + u, z);
    lanes.Store(row.phase_operand + u, operand);
    if (row.gates != nullptr) {
      SaveGate(row.gates, u, xz, z, 0, lanes);
      SaveGate(row.gates, u, xr, r, 1, lanes);
      this->Save(row.previous_h + u, lanes.Load(row.h + u), lanes);
      this->Save(row.candidate + u, operand, lanes);
    }
  }

  template <class Lanes>
  ECORNN_INLINE void FinishCandidate(const ForwardRow<S>& row,
                                     const V (&sum)[1], const V (&x)[1],
                                     int64_t u, Lanes lanes) const {
    const V xn = sum[0] + this->InputSide(row, x[0], 2, u, lanes);
    const V n = functions.candidate.Apply(xn);
    if (row.gates != nullptr) SaveGate(row.gates, u, xn, n, 2, lanes);
    const V z = lanes.Load(row.update_gate + u);
    this->template StoreState<kGates>(
        row, u, GruBlend(z, lanes.Load(row.h + u), n), lanes);
  }
};

// The cell in the backward pass.
template <class Storage, class FunctionPair, bool kResetAfter>
struct GruBackward : BackwardCell<Storage> {
  using S = Storage;
  using V = typename BackwardCell<S>::V;
  using C = ComputeType<S>;
  static constexpr int kGates = 3;
  static constexpr bool kHasCellState = false;
  // The candidate's gradient differs between the input and the recurrent side.
  static constexpr bool kSplitCandidate = kResetAfter;
  // z h hands a part of the gradient straight to the earlier state.
  static constexpr bool kHasDirect = true;
  // Phase 0 is the state's own product. Without reset after, h reached the
  // candidate through r * h, whose gradient is phase 1's product.
  static constexpr int kPhases = kResetAfter ? 1 : 2;
  static constexpr int kFirstGate[2] = {0, 2};
  static constexpr int kGateCount[2] = {kResetAfter ? 3 : 2, 1};
  static constexpr int kParts[2] = {1, 1};

  FunctionPair functions;

  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void Finish(const BackwardRow<S>& row, V grad, V&, int64_t u,
                            Lanes lanes) const {
    if (kPhase == 0) {
      FinishState(row, grad, u, lanes);
    } else {
      FinishOperand(row, grad, u, lanes);
    }
  }

 private:
  template <class Lanes>
  ECORNN_INLINE V Saved(const BackwardRow<S>& row, int gate, int64_t u,
                        Lanes lanes) const {
    return lanes.Load(row.gates + gate * this->units + u);
  }

  // From the gradient of the state that left the step.
  template <class Lanes>
  ECORNN_INLINE void FinishState(const BackwardRow<S>& row, V grad_h, int64_t u,
                                 Lanes lanes) const {
    V grad_z;
    V grad_n;
    const V direct = GruStateGradient(
        functions, Saved(row, 0, u, lanes), Saved(row, 2, u, lanes),
        lanes.Load(row.previous_h + u), grad_h, grad_z, grad_n);
    if (kResetAfter) {
      const V saved_r = Saved(row, 1, u, lanes);
      const V r = functions.gate.Restore(saved_r);
      const V grad_r = GruResetGradient(functions, saved_r, r,
                                        lanes.Load(row.candidate + u), grad_n);
      const V recurrent = grad_n * r;
      this->StoreGradient(row, 1, u, grad_r, lanes);
      this->StoreInputGradient(row, 2, u, grad_n, lanes);
      lanes.Store(row.grad_z + 2 * this->gate_stride + u, recurrent);
      lanes.Store(row.grad_candidate + u, recurrent);
      this->AddToBias(row, kGates * this->units + u, recurrent, lanes);
    } else {
      this->StoreGradient(row, 2, u, grad_n, lanes);
    }
    this->StoreGradient(row, 0, u, grad_z, lanes);
    lanes.Store(row.direct_next + u, direct);
  }

  // From the gradient of r * h, h with its dropout.
  template <class Lanes>
  ECORNN_INLINE void FinishOperand(const BackwardRow<S>& row, V grad, int64_t u,
                                   Lanes lanes) const {
    if (row.dropout != nullptr) {
      grad = grad * lanes.Load(row.dropout + 2 * this->units + u);
    }
    const V saved_r = Saved(row, 1, u, lanes);
    const V r = functions.gate.Restore(saved_r);
    const V grad_r = GruResetGradient(functions, saved_r, r,
                                      lanes.Load(row.previous_h + u), grad);
    this->StoreGradient(row, 1, u, grad_r, lanes);
    lanes.Store(row.direct_next + u,
                Fma(grad, r, lanes.Load(row.direct_next + u)));
  }
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_CELL_GRU_H_
