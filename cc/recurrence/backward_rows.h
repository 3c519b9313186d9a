// The rows of the backward pass between its steps: what each of them carries,
// and where the arrays of its next step lie.
#ifndef TF_ECORNN_CC_RECURRENCE_BACKWARD_ROWS_H_
#define TF_ECORNN_CC_RECURRENCE_BACKWARD_ROWS_H_

#include "cell/rows.h"
#include "engine.h"
#include "layout.h"
#include "masked_run.h"
#include "product.h"

namespace ecornn {
namespace ECORNN_TARGET {

// Rows go from the last step to the first, each by calls of one thread: Start;
// for every step either Take or, where it is masked, Skip, then DropReset;
// TakeInitial.
template <class Cell>
class BackwardRows {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  static constexpr int kGates = Cell::kGates;

  // `gate_stride`: U in whole groups. `prefetches`: a row's next step is
  // fetched when it takes one.
  BackwardRows(const BackwardArgs<S>& args, int64_t gate_stride,
               bool prefetches)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        width_(kGates * units_),
        gate_stride_(gate_stride),
        grad_stride_(RowStride<P>(kGates * gate_stride)),
        unit_stride_(RowStride<C>(units_)),
        prefetches_(prefetches) {}

  void Place(Arena& arena) {
    grad_z_ = arena.template Take<P>(2 * batch_ * grad_stride_);
    grad_c_ =
        arena.template Take<C>(Cell::kHasCellState ? batch_ * unit_stride_ : 0);
    direct_ = arena.template Take<C>(batch_ * unit_stride_);
    pending_ = arena.template Take<C>(batch_ * unit_stride_);
    no_gradient_ = arena.template Take<P>(kGates * gate_stride_);
    states_ = arena.template Take<State>(batch_);
  }

  // Before rows start.
  void Clear() { ZeroRow(no_gradient_, kGates * gate_stride_); }

  void Start(int64_t row) {
    states_[row] = {0, false, true, false};
    for (int parity = 0; parity < 2; ++parity) {
      for (int g = 0; g < kGates; ++g) {
        EndGroup(GradZ(row, parity) + g * gate_stride_, units_);
      }
    }
    CopyRow(direct_ + row * unit_stride_, args_.grad_final_h + row * units_,
            units_);
    if (Cell::kHasCellState) {
      CopyRow(grad_c_ + row * unit_stride_, args_.grad_final_c + row * units_,
              units_);
    }
    // The last output is the last step's, a repetition, or zero.
    if (steps_ > 0 &&
        !(IsMasked(row, steps_ - 1) && args_.sequence.zero_output_for_mask)) {
      CopyRow(pending_ + row * unit_stride_,
              args_.grad_last_output + row * units_, units_);
      states_[row].has_pending = true;
    }
  }

  bool IsMasked(int64_t row, int64_t step) const {
    return args_.mask != nullptr && !args_.mask[row * steps_ + Time(step)];
  }

  // Whether a later step read the row's state.
  bool HasProduct(int64_t row) const { return states_[row].has_product; }

  // The arrays of a step, which adds to `grad_bias`.
  BackwardRow<S> Take(int64_t row, int64_t step, C* grad_bias) {
    State& state = states_[row];
    const int64_t at = row * steps_ + Time(step);
    BackwardRow<S> r = StateRow(row);
    r.gates = args_.gates + at * width_;
    if (Cell::kHasCellState) {
      r.previous_c = args_.previous_c + at * units_;
      r.grad_c = grad_c_ + row * unit_stride_;
    } else {
      r.previous_h = args_.previous_h + at * units_;
    }
    if (Cell::kSplitCandidate) {
      r.candidate = args_.candidate + at * units_;
      r.grad_candidate = args_.grad_candidate + at * units_;
    }
    r.grad_gates = args_.grad_gates + at * width_;
    r.grad_z = GradZ(row, 1 - state.parity);
    r.direct_next = direct_ + row * unit_stride_;
    if (state.has_pending) r.pending = pending_ + row * unit_stride_;
    if (args_.grad_outputs != nullptr) {
      r.grad_output = args_.grad_outputs + (row * steps_ + step) * units_;
    }
    r.grad_bias = grad_bias;
    state = {1 - state.parity, true, Cell::kHasDirect, false};
    if (step > 0 && prefetches_) {
      PrefetchSaved(r, args_.sequence.reverse ? 1 : -1);
    }
    return r;
  }

  // A masked step: the gradient of a repeated output waits for the step that
  // put it out; the state's gradients pass by.
  void Skip(int64_t row, int64_t step) {
    ClearRun(row, Time(step));
    if (args_.grad_outputs == nullptr || args_.sequence.zero_output_for_mask) {
      return;
    }
    C* pending = pending_ + row * unit_stride_;
    const S* grad = args_.grad_outputs + (row * steps_ + step) * units_;
    State& state = states_[row];
    if (!state.has_pending) ZeroRow(pending, units_);
    state.has_pending = true;
    for (int64_t u = 0; u < units_; ++u) pending[u] += Widen(grad[u]);
  }

  // After a step: if the state was set to zero before it, nothing reaches
  // further back.
  void DropReset(int64_t row, int64_t step) {
    if (!args_.reset[row * steps_ + Time(step)]) return;
    states_[row].has_product = false;
    states_[row].has_direct = false;
    if (Cell::kHasCellState) ZeroRow(grad_c_ + row * unit_stride_, units_);
  }

  // Puts out the gradient of the initial cell state; that of h goes to the
  // row's `grad_gates`.
  BackwardRow<S> TakeInitial(int64_t row) const {
    BackwardRow<S> r = StateRow(row);
    r.grad_gates = args_.grad_initial_h + row * units_;
    if (Cell::kHasCellState) {
      CopyRow(args_.grad_initial_c + row * units_, grad_c_ + row * unit_stride_,
              units_);
    }
    return r;
  }

 private:
  // What is kept of a row between steps.
  struct State {
    int parity;        // which of the two gradient buffers is current
    bool has_product;  // a later step read this row's state
    bool has_direct;   // direct_ holds a gradient of the state
    bool has_pending;  // pending_ holds a gradient of repeated outputs
  };

  int64_t Time(int64_t step) const {
    return args_.sequence.reverse ? steps_ - 1 - step : step;
  }

  P* GradZ(int64_t row, int parity) const {
    return grad_z_ + (2 * row + parity) * grad_stride_;
  }

  // What the row's step `ahead` of this one in time will read: 5 to 10 % for U
  // up to 256. The forward pass, which mostly writes, gains nothing by it.
  void PrefetchSaved(const BackwardRow<S>& r, int64_t ahead) const {
    PrefetchLines(r.gates + ahead * width_, width_);
    if (Cell::kHasCellState) {
      PrefetchLines(r.previous_c + ahead * units_, units_);
    } else {
      PrefetchLines(r.previous_h + ahead * units_, units_);
    }
    if (Cell::kSplitCandidate) {
      PrefetchLines(r.candidate + ahead * units_, units_);
    }
  }

  // What leads to the gradient of a row's current state.
  BackwardRow<S> StateRow(int64_t row) const {
    const State& state = states_[row];
    BackwardRow<S> r = {};
    r.grad_z_later =
        state.has_product ? GradZ(row, state.parity) : no_gradient_;
    if (state.has_direct) r.direct = direct_ + row * unit_stride_;
    if (args_.recurrent_dropout != nullptr) {
      r.dropout = args_.recurrent_dropout + row * width_;
    }
    return r;
  }

  // At the first of several masked steps: zeros for all of them. What the
  // forward pass saved of them is zero.
  void ClearRun(int64_t row, int64_t t) const {
    const MaskedRun run =
        EnteredRun(args_.mask, steps_, row, t, args_.sequence.reverse ? 1 : -1);
    if (args_.grad_gates != args_.gates) {
      ZeroRow(args_.grad_gates + run.first * width_, run.count * width_);
    }
    if (Cell::kSplitCandidate) {
      ZeroRow(args_.grad_candidate + run.first * units_, run.count * units_);
    }
  }

  const BackwardArgs<S>& args_;
  const int64_t batch_;
  const int64_t steps_;
  const int64_t units_;
  const int64_t width_;  // GU
  const int64_t gate_stride_;
  const int64_t grad_stride_;
  const int64_t unit_stride_;
  const bool prefetches_;

  // In the scratch memory:
  P* grad_z_;       // (B, 2, stride of G gates)
  C* grad_c_;       // (B, stride of U)
  C* direct_;       // (B, stride of U)
  C* pending_;      // (B, stride of U)
  P* no_gradient_;  // (G, gate stride), zero
  State* states_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_BACKWARD_ROWS_H_
