// The rows of the forward pass between its steps: what each of them carries,
// and where the arrays of its next step lie.
#ifndef TF_ECORNN_CC_RECURRENCE_FORWARD_ROWS_H_
#define TF_ECORNN_CC_RECURRENCE_FORWARD_ROWS_H_

#include "cell/rows.h"
#include "engine.h"
#include "layout.h"
#include "masked_run.h"
#include "product.h"

namespace ecornn {
namespace ECORNN_TARGET {

// Rows go from the first step to the last, each by calls of one thread: Start;
// for every step Skip where it is masked, then Reset, then Take unless it is
// masked; Finish.
template <class Cell>
class ForwardRows {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kStateIsOperand = sizeof(P) == sizeof(C);

  // The lengths of h and of x as operands: in whole groups.
  ForwardRows(const ForwardArgs<S>& args, int64_t state_depth,
              int64_t input_depth)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        unit_stride_(RowStride<C>(units_)),
        operand_stride_(RowStride<P>(state_depth)),
        operand_copies_(args.recurrent_dropout != nullptr ? kGates
                        : kStateIsOperand                 ? 0
                                                          : 1),
        input_depth_(input_depth),
        copies_inputs_(
            args.kernel != nullptr &&
            (sizeof(S) != sizeof(P) || input_depth != args.features)) {}

  // From one gate's operand to the next one's.
  int64_t operand_stride() const { return operand_stride_; }

  void Place(Arena& arena) {
    h_ = arena.template Take<C>(2 * batch_ * unit_stride_);
    operands_ =
        arena.template Take<P>(2 * batch_ * operand_copies_ * operand_stride_);
    c_ =
        arena.template Take<C>(Cell::kHasCellState ? batch_ * unit_stride_ : 0);
    x_ = arena.template Take<P>(copies_inputs_ ? batch_ * input_depth_ : 0);
    constexpr bool kTwoPhases = Cell::kPhases == 2;
    update_gates_ =
        arena.template Take<C>(kTwoPhases ? batch_ * unit_stride_ : 0);
    phase_operands_ =
        arena.template Take<P>(kTwoPhases ? batch_ * operand_stride_ : 0);
    states_ = arena.template Take<State>(batch_);
  }

  void Start(int64_t row) {
    states_[row] = {0, false, false};
    SetState(row, args_.initial_h + row * units_);
    EndOperands(row);
    if (Cell::kHasCellState) {
      CopyRow(c_ + row * unit_stride_, args_.initial_c + row * units_, units_);
    }
  }

  bool IsMasked(int64_t row, int64_t step) const {
    return args_.mask != nullptr && !args_.mask[row * steps_ + Time(step)];
  }

  // A masked step: the output is repeated or zero, the state stays.
  void Skip(int64_t row, int64_t step) {
    State& state = states_[row];
    S* last = args_.last_output + row * units_;
    if (state.active) {
      CopyRow(last, StateOf(row, state.parity), units_);
      state.active = false;
    }
    if (args_.outputs != nullptr) {
      S* output = args_.outputs + (row * steps_ + step) * units_;
      if (state.has_output && !args_.sequence.zero_output_for_mask) {
        __builtin_memcpy((void*)output, last, units_ * sizeof(S));
      } else {
        ZeroRow(output, units_);
      }
    }
    if (args_.gates != nullptr) ClearRun(row, Time(step));
  }

  // Before a step: sets the state to zero where that is asked for.
  void Reset(int64_t row, int64_t step) {
    if (args_.reset == nullptr || !args_.reset[row * steps_ + Time(step)]) {
      return;
    }
    SetState(row, nullptr);
    if (Cell::kHasCellState) ZeroRow(c_ + row * unit_stride_, units_);
  }

  // The arrays of a step.
  ForwardRow<S> Take(int64_t row, int64_t step) {
    State& state = states_[row];
    const int entering = state.parity;
    const int leaving = 1 - entering;
    state = {leaving, true, true};
    const int64_t at = row * steps_ + Time(step);
    ForwardRow<S> r = {};
    if (args_.kernel == nullptr) {
      r.gates_x = args_.gates_x + at * kGates * units_;
    } else {
      r.x = Input(row, args_.x + at * args_.features);
    }
    r.h = StateOf(row, entering);
    r.h_next = StateOf(row, leaving);
    if (Cell::kHasCellState) r.c = c_ + row * unit_stride_;
    if (Cell::kPhases == 2) {
      r.update_gate = update_gates_ + row * unit_stride_;
      r.phase_operand = phase_operands_ + row * operand_stride_;
    }
    if (args_.outputs != nullptr) {
      r.output = args_.outputs + (row * steps_ + step) * units_;
    }
    if (args_.gates != nullptr) {
      r.gates = args_.gates + at * kGates * units_;
      r.previous_h = args_.previous_h + at * units_;
      if (Cell::kHasCellState) r.previous_c = args_.previous_c + at * units_;
      if (Cell::kSavesCandidate) r.candidate = args_.candidate + at * units_;
    }
    if (args_.recurrent_dropout != nullptr) {
      r.dropout = args_.recurrent_dropout + row * kGates * units_;
    }
    if (operand_copies_ > 0) {
      r.operands = Operands(row, entering);
      r.operands_next = Operands(row, leaving);
    }
    return r;
  }

  // Puts out the final states and the last output.
  void Finish(int64_t row) const {
    const State& state = states_[row];
    const C* h = StateOf(row, state.parity);
    CopyRow(args_.final_h + row * units_, h, units_);
    if (Cell::kHasCellState) {
      CopyRow(args_.final_c + row * units_, c_ + row * unit_stride_, units_);
    }
    S* last = args_.last_output + row * units_;
    if (state.active) {
      CopyRow(last, h, units_);
    } else if (!state.has_output || args_.sequence.zero_output_for_mask) {
      ZeroRow(last, units_);
    }
  }

 private:
  // What is kept of a row between steps.
  struct State {
    int parity;       // which of the two state buffers is current
    bool active;      // the last processed step was valid
    bool has_output;  // some processed step was valid
  };

  int64_t Time(int64_t step) const {
    return args_.sequence.reverse ? steps_ - 1 - step : step;
  }

  C* StateOf(int64_t row, int parity) const {
    return h_ + (2 * row + parity) * unit_stride_;
  }
  P* Operands(int64_t row, int parity) const {
    return operands_ + (2 * row + parity) * operand_copies_ * operand_stride_;
  }

  // Fills a row's current state and operands from an array, or with zeros if
  // that is null.
  void SetState(int64_t row, const S* from) {
    const int parity = states_[row].parity;
    C* h = StateOf(row, parity);
    if (from == nullptr) {
      ZeroRow(h, units_);
    } else {
      CopyRow(h, from, units_);
    }
    for (int g = 0; g < operand_copies_; ++g) {
      P* operand = Operands(row, parity) + g * operand_stride_;
      if (args_.recurrent_dropout == nullptr) {
        CopyRow(operand, h, units_);
        continue;
      }
      const S* keep = args_.recurrent_dropout + (row * kGates + g) * units_;
      for (int64_t u = 0; u < units_; ++u) {
        Narrow(h[u] * Widen(keep[u]), operand + u);
      }
    }
  }

  // Operands end in zeros that the steps leave alone.
  void EndOperands(int64_t row) {
    for (int parity = 0; parity < 2; ++parity) {
      for (int g = 0; g < operand_copies_; ++g) {
        EndGroup(Operands(row, parity) + g * operand_stride_, units_);
      }
    }
    if (Cell::kPhases == 2) {
      EndGroup(phase_operands_ + row * operand_stride_, units_);
    }
  }

  // A step's inputs as they are multiplied.
  const P* Input(int64_t row, const S* x) {
    if constexpr (sizeof(S) == sizeof(P)) {
      if (!copies_inputs_) return x;
    }
    P* copy = x_ + row * input_depth_;
    CopyRow(copy, x, args_.features);
    EndGroup(copy, args_.features);
    return copy;
  }

  // At the first of several masked steps: saves zeros for all of them.
  void ClearRun(int64_t row, int64_t t) const {
    const MaskedRun run =
        EnteredRun(args_.mask, steps_, row, t, args_.sequence.reverse ? -1 : 1);
    const int64_t first = run.first * units_;
    const int64_t count = run.count * units_;
    ZeroRow(args_.gates + kGates * first, kGates * count);
    ZeroRow(args_.previous_h + first, count);
    if (Cell::kHasCellState) ZeroRow(args_.previous_c + first, count);
    if (Cell::kSavesCandidate) ZeroRow(args_.candidate + first, count);
  }

  const ForwardArgs<S>& args_;
  const int64_t batch_;
  const int64_t steps_;
  const int64_t units_;
  const int64_t unit_stride_;
  const int64_t operand_stride_;
  const int operand_copies_;
  const int64_t input_depth_;
  const bool copies_inputs_;

  // In the scratch memory:
  C* h_;               // (B, 2, stride of U)
  P* operands_;        // (B, 2, copies, operand stride)
  C* c_;               // (B, stride of U)
  P* x_;               // (B, input depth) where inputs are copied
  C* update_gates_;    // (B, stride of U) between two phases
  P* phase_operands_;  // (B, operand stride) between two phases
  State* states_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_FORWARD_ROWS_H_
