// The forward pass: packs the recurrent weights, then takes blocks of rows
// through the sequence.
//
//   for each step
//     for each phase of the cell          LSTM: one
//       for each panel of units           weights of one vector of units, by
//       gate
//         for each tile of active rows    sums in registers, then the cell
//
// The inputs' own product is either ready, or one more sum of each tile.
#ifndef TF_ECORNN_CC_RECURRENCE_FORWARD_H_
#define TF_ECORNN_CC_RECURRENCE_FORWARD_H_

#include "cell/rows.h"
#include "engine.h"
#include "layout.h"
#include "product.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class Cell>
class ForwardPass {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  using V = typename Simd<C>::Vector;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr int kGroup = Multiply<P>::kGroup;
  // Elements of a panel's vector of weights.
  static constexpr int kGroups = kLanes * kGroup;
  static constexpr bool kStateIsOperand = sizeof(P) == sizeof(C);

  ForwardPass(const ForwardArgs<S>& args, decltype(Cell::functions) functions,
              int team_size)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        features_(args.kernel == nullptr ? 0 : args.features),
        depth_(WholeGroups<P>(units_)),
        input_depth_(WholeGroups<P>(features_)),
        row_stride_(RowStride<C>(units_)),
        operand_stride_(RowStride<P>(depth_)),
        operand_copies_(args.recurrent_dropout != nullptr ? kGates
                        : kStateIsOperand                 ? 0
                                                          : 1),
        copies_inputs_(sizeof(S) != sizeof(P) || input_depth_ != features_),
        split_(batch_,
               ChooseBlocks(batch_, steps_, units_,
                            kGates * (units_ + features_), sizeof(P),
                            (2 * kGates + 4) * units_ * sizeof(C), team_size)) {
    cell_.functions = functions;
    cell_.units = units_;
    cell_.operand_stride = operand_stride_;
  }

  size_t scratch_bytes() {
    Arena arena(nullptr);
    Place(arena);
    return arena.used();
  }

  void Run(void* scratch, Team& team) {
    if (batch_ == 0) return;
    Arena arena(scratch);
    Place(arena);
    if (steps_ > 0) PackAll(team);
    team.Run(
        split_.blocks(),
        [](void* pass, int block) {
          static_cast<ForwardPass*>(pass)->RunBlock(block);
        },
        this);
  }

 private:
  // What the loop keeps of a row between steps.
  struct RowState {
    int parity;       // which of the two state buffers holds the current state
    bool active;      // the last processed step was valid
    bool has_output;  // some processed step was valid
  };

  int64_t panels() const { return CeilDiv<int64_t>(units_, kLanes); }

  void Place(Arena& arena) {
    const int64_t packed_width = panels() * kGates * kLanes;
    recurrent_packed_ = arena.template Take<P>(depth_ * packed_width);
    input_packed_ = arena.template Take<P>(input_depth_ * packed_width);
    bias_ = arena.template Take<C>(kGates * units_);
    recurrent_bias_ = arena.template Take<C>(kGates * units_);
    h_ = arena.template Take<C>(2 * batch_ * row_stride_);
    operands_ =
        arena.template Take<P>(2 * batch_ * operand_copies_ * operand_stride_);
    c_ = arena.template Take<C>(Cell::kHasCellState ? batch_ * row_stride_ : 0);
    x_ = arena.template Take<P>(copies_inputs_ ? batch_ * input_depth_ : 0);
    constexpr bool kTwoPhases = Cell::kPhases == 2;
    update_gates_ =
        arena.template Take<C>(kTwoPhases ? batch_ * row_stride_ : 0);
    phase_operands_ =
        arena.template Take<P>(kTwoPhases ? batch_ * operand_stride_ : 0);
    row_states_ = arena.template Take<RowState>(batch_);
    step_rows_ = arena.template Take<ForwardRow<S>>(batch_);
    cell_.bias = bias_;
    cell_.recurrent_bias = recurrent_bias_;
  }

  void PackAll(Team& team) {
    SetRow(bias_, args_.bias, kGates * units_);
    SetRow(recurrent_bias_, args_.recurrent_bias, kGates * units_);
    // Copying is cheap: only a large matrix is worth a second thread.
    if (units_ < 256 || team.size() == 1) {
      for (int64_t p = 0; p < panels(); ++p) Pack(p);
    } else {
      team.Run(
          static_cast<int>(panels()),
          [](void* pass, int panel) {
            static_cast<ForwardPass*>(pass)->Pack(panel);
          },
          this);
    }
  }

  // Where, in packed weights of `depth` rows, phase q's panel p begins: (depth
  // / group, gates of the phase, lanes, group).
  P* Panel(P* packed, int64_t depth, int q, int64_t p) const {
    return packed +
           depth * kLanes *
               (panels() * Cell::kFirstGate[q] + p * Cell::kGateCount[q]);
  }

  void Pack(int64_t p) {
    Pack(p, args_.recurrent_kernel, units_, recurrent_packed_);
    Pack(p, args_.kernel, features_, input_packed_);
  }

  // Panel p of each phase: for each row k of (depth, GU) weights those of units
  // [p * kLanes, ...).
  void Pack(int64_t p, const S* weights, int64_t depth, P* packed) const {
    const int64_t u = p * kLanes;
    const int count = static_cast<int>(MinOf<int64_t>(kLanes, units_ - u));
    for (int q = 0; q < Cell::kPhases; ++q) {
      P* to = Panel(packed, WholeGroups<P>(depth), q, p);
      for (int64_t k = 0; k < depth; k += kGroup) {
        for (int g = 0; g < Cell::kGateCount[q]; ++g, to += kGroups) {
          const S* rows[kGroup];
          for (int i = 0; i < kGroup; ++i) {
            const int64_t gate = (k + i) * kGates + Cell::kFirstGate[q] + g;
            rows[i] = k + i < depth ? weights + gate * units_ + u : nullptr;
          }
          Multiply<P>::Pack(rows, count, to);
        }
      }
    }
  }

  static void SetRow(C* to, const S* from, int64_t count) {
    if (from == nullptr) {
      ZeroRow(to, count);
    } else {
      CopyRow(to, from, count);
    }
  }

  C* State(int64_t row, int parity) const {
    return h_ + (2 * row + parity) * row_stride_;
  }
  P* Operands(int64_t row, int parity) const {
    return operands_ + (2 * row + parity) * operand_copies_ * operand_stride_;
  }

  // Fills a row's state and operands from an array, or with zero.
  void SetState(int64_t row, int parity, const S* from) {
    C* h = State(row, parity);
    SetRow(h, from, units_);
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

  void RunBlock(int block) {
    const int64_t begin = split_.FirstRow(block);
    const int64_t end = split_.FirstRow(block + 1);
    for (int64_t row = begin; row < end; ++row) {
      row_states_[row] = {0, false, false};
      SetState(row, 0, args_.initial_h + row * units_);
      EndOperands(row);
      if (Cell::kHasCellState) {
        SetRow(c_ + row * row_stride_, args_.initial_c + row * units_, units_);
      }
    }
    for (int64_t step = 0; step < steps_; ++step) RunStep(step, begin, end);
    for (int64_t row = begin; row < end; ++row) FinishRow(row);
  }

  void RunStep(int64_t step, int64_t begin, int64_t end) {
    const int64_t t = args_.sequence.reverse ? steps_ - 1 - step : step;
    ForwardRow<S>* active = step_rows_ + begin;
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * steps_ + t;
      const bool skip = args_.mask != nullptr && !args_.mask[at];
      if (skip) SkipStep(row, step, at);
      if (args_.reset != nullptr && args_.reset[at]) {
        SetState(row, row_states_[row].parity, nullptr);
        if (Cell::kHasCellState) ZeroRow(c_ + row * row_stride_, units_);
      }
      if (!skip) active[count++] = StepRow(row, step, at);
    }
    if (count == 0) return;
    for (int64_t p = 0; p < panels(); ++p) RunPanel<0>(p, active, count);
    if constexpr (Cell::kPhases == 2) {
      for (int64_t p = 0; p < panels(); ++p) RunPanel<1>(p, active, count);
    }
  }

  ForwardRow<S> StepRow(int64_t row, int64_t step, int64_t at) {
    RowState& state = row_states_[row];
    const int entering = state.parity;
    const int leaving = 1 - entering;
    state = {leaving, true, true};
    const bool saves = args_.gates != nullptr;
    ForwardRow<S> r = {};
    if (args_.kernel == nullptr) {
      r.gates_x = args_.gates_x + at * kGates * units_;
    } else {
      r.x = Input(row, args_.x + at * features_);
    }
    r.h = State(row, entering);
    r.h_next = State(row, leaving);
    if (Cell::kHasCellState) r.c = c_ + row * row_stride_;
    if (Cell::kPhases == 2) {
      r.update_gate = update_gates_ + row * row_stride_;
      r.phase_operand = phase_operands_ + row * operand_stride_;
    }
    if (args_.outputs != nullptr) {
      r.output = args_.outputs + (row * steps_ + step) * units_;
    }
    if (saves) {
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

  // A step's inputs as they are multiplied.
  const P* Input(int64_t row, const S* x) {
    if constexpr (sizeof(S) == sizeof(P)) {
      if (!copies_inputs_) return x;
    }
    P* copy = x_ + row * input_depth_;
    CopyRow(copy, x, features_);
    EndGroup(copy, features_);
    return copy;
  }

  // A masked step: the output is repeated or zero, the state stays.
  void SkipStep(int64_t row, int64_t step, int64_t at) {
    RowState& state = row_states_[row];
    S* last = args_.last_output + row * units_;
    if (state.active) {
      CopyRow(last, State(row, state.parity), units_);
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
    if (args_.gates != nullptr) {
      ZeroRow(args_.gates + at * kGates * units_, kGates * units_);
      ZeroRow(args_.previous_h + at * units_, units_);
      if (Cell::kHasCellState) ZeroRow(args_.previous_c + at * units_, units_);
      if (Cell::kSavesCandidate) ZeroRow(args_.candidate + at * units_, units_);
    }
  }

  void FinishRow(int64_t row) {
    const RowState& state = row_states_[row];
    const C* h = State(row, state.parity);
    CopyRow(args_.final_h + row * units_, h, units_);
    if (Cell::kHasCellState) {
      CopyRow(args_.final_c + row * units_, c_ + row * row_stride_, units_);
    }
    S* last = args_.last_output + row * units_;
    if (state.active) {
      CopyRow(last, h, units_);
    } else if (!state.has_output || args_.sequence.zero_output_for_mask) {
      ZeroRow(last, units_);
    }
  }

  template <int kPhase>
  void RunPanel(int64_t p, const ForwardRow<S>* rows, int64_t count) {
    constexpr int kVectors = Cell::kGateCount[kPhase];
    const P* panel = Panel(recurrent_packed_, depth_, kPhase, p);
    const P* input_panel = Panel(input_packed_, input_depth_, kPhase, p);
    const int64_t u = p * kLanes;
    ForEachTile(count, [&](int64_t first, int n) {
      const ForwardRow<S>* tile = rows + first;
      for (int r = 0; r < n; ++r) {
        cell_.template PrefetchRow<kGates>(tile[r], Cell::kFirstGate[kPhase],
                                           kVectors, u);
      }
      Sums<kPhase> x[kTileRows];
      Sums<kPhase> sums[kTileRows];
      const auto product = Products<P>::kPlain[n - 1][kVectors - 1];
      const P* operands[kTileRows];
      if (args_.kernel != nullptr) {
        for (int r = 0; r < n; ++r) operands[r] = tile[r].x;
        product(operands, input_depth_, input_panel, &x[0][0]);
      }
      for (int r = 0; r < n; ++r) operands[r] = Operand<kPhase>(tile[r]);
      if (kPhase == 1 || args_.recurrent_dropout == nullptr) {
        product(operands, depth_, panel, &sums[0][0]);
      } else {
        Products<P>::kPerVector[n - 1][kVectors - 1](
            operands, operand_stride_, depth_, panel, &sums[0][0]);
      }
      if (units_ - u >= kLanes) {
        Finish<kPhase>(tile, n, sums, x, u, FullLanes{});
      } else {
        Finish<kPhase>(tile, n, sums, x, u,
                       FirstLanes{static_cast<int>(units_ - u)});
      }
    });
  }

  // What a phase multiplies of a row.
  template <int kPhase>
  static const P* Operand(const ForwardRow<S>& row) {
    if (kPhase == 1) return row.phase_operand;
    if constexpr (kStateIsOperand) {
      if (row.operands == nullptr) return row.h;
    }
    return row.operands;
  }

  // One row's sums in a tile.
  template <int kPhase>
  using Sums = V[Cell::kGateCount[kPhase]];

  template <int kPhase, class Lanes>
  __attribute__((noinline)) void Finish(const ForwardRow<S>* rows, int count,
                                        Sums<kPhase>* sums,
                                        const Sums<kPhase>* x, int64_t u,
                                        Lanes lanes) const {
    FinishPart<kPhase, 0>(rows, count, sums, x, u, lanes);
    if constexpr (Cell::kParts[kPhase] == 2) {
      FinishPart<kPhase, 1>(rows, count, sums, x, u, lanes);
    }
  }

  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void FinishPart(const ForwardRow<S>* rows, int count,
                                Sums<kPhase>* sums, const Sums<kPhase>* x,
                                int64_t u, Lanes lanes) const {
    for (int r = 0; r < count; ++r) {
      cell_.template Finish<kPhase, kPart>(rows[r], sums[r], x[r], u, lanes);
    }
  }

  const ForwardArgs<S>& args_;
  const int64_t batch_;
  const int64_t steps_;
  const int64_t units_;
  const int64_t features_;
  const int64_t depth_;        // U in whole groups
  const int64_t input_depth_;  // F in whole groups
  const int64_t row_stride_;
  const int64_t operand_stride_;
  const int operand_copies_;
  const bool copies_inputs_;
  const RowSplit split_;
  Cell cell_;

  // In the scratch memory:
  P* recurrent_packed_;  // by phase: (panels, depth, gates, lanes)
  P* input_packed_;      // by phase: (panels, input depth, gates, lanes)
  C* bias_;              // (GU)
  C* recurrent_bias_;    // (GU)
  C* h_;                 // (B, 2, stride)
  P* operands_;          // (B, 2, copies, operand stride)
  C* c_;                 // (B, stride)
  P* x_;                 // (B, input depth) where inputs are copied
  C* update_gates_;      // (B, stride) between two phases
  P* phase_operands_;    // (B, operand stride) between two phases
  RowState* row_states_;
  ForwardRow<S>* step_rows_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_FORWARD_H_
