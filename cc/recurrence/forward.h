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
  using V = typename Simd<C>::Vector;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr bool kConvertsInputs = sizeof(S) != sizeof(C);

  ForwardPass(const ForwardArgs<S>& args, decltype(Cell::functions) functions,
              int team_size)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        features_(args.kernel == nullptr ? 0 : args.features),
        row_stride_(RowStride<C>(units_)),
        operand_copies_(args.recurrent_dropout == nullptr ? 0 : kGates),
        split_(batch_,
               ChooseBlocks(batch_, steps_, units_,
                            kGates * (units_ + features_), sizeof(C),
                            (2 * kGates + 4) * units_ * sizeof(C), team_size)) {
    cell_.functions = functions;
    cell_.units = units_;
    cell_.row_stride = row_stride_;
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
  int64_t state_elements() const { return row_stride_ * (1 + operand_copies_); }

  void Place(Arena& arena) {
    const int64_t packed_width = panels() * kGates * kLanes;
    recurrent_packed_ = arena.template Take<C>(units_ * packed_width);
    input_packed_ = arena.template Take<C>(features_ * packed_width);
    bias_ = arena.template Take<C>(kGates * units_);
    recurrent_bias_ = arena.template Take<C>(kGates * units_);
    // Two states of every row, each followed by its dropped-out copies.
    h_ = arena.template Take<C>(2 * batch_ * state_elements());
    c_ = arena.template Take<C>(Cell::kHasCellState ? batch_ * row_stride_ : 0);
    x_ = arena.template Take<C>(kConvertsInputs ? batch_ * features_ : 0);
    work_ = arena.template Take<C>(Cell::kWorkRows * batch_ * row_stride_);
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

  // Where, in packed weights of `depth` rows, phase q's panel p begins: (depth,
  // gates of the phase, lanes).
  C* Panel(C* packed, int64_t depth, int q, int64_t p) const {
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
  void Pack(int64_t p, const S* weights, int64_t depth, C* packed) const {
    const int64_t u = p * kLanes;
    const int count = static_cast<int>(MinOf<int64_t>(kLanes, units_ - u));
    for (int q = 0; q < Cell::kPhases; ++q) {
      C* to = Panel(packed, depth, q, p);
      for (int64_t k = 0; k < depth; ++k) {
        const S* from =
            weights + (k * kGates + Cell::kFirstGate[q]) * units_ + u;
        for (int g = 0; g < Cell::kGateCount[q]; ++g, to += kLanes) {
          Store(to, LoadFirst(from + g * units_, count));
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
    return h_ + (2 * row + parity) * state_elements();
  }

  // Fills a row's state and its dropped-out copies from an array, or with zero.
  void SetState(int64_t row, int parity, const S* from) {
    C* h = State(row, parity);
    SetRow(h, from, units_);
    for (int g = 0; g < operand_copies_; ++g) {
      const S* keep = args_.recurrent_dropout + (row * kGates + g) * units_;
      C* operand = h + (1 + g) * row_stride_;
      for (int64_t u = 0; u < units_; ++u) operand[u] = h[u] * Widen(keep[u]);
    }
  }

  void RunBlock(int block) {
    const int64_t begin = split_.FirstRow(block);
    const int64_t end = split_.FirstRow(block + 1);
    for (int64_t row = begin; row < end; ++row) {
      row_states_[row] = {0, false, false};
      SetState(row, 0, args_.initial_h + row * units_);
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
    const C* h = State(row, state.parity);
    state = {1 - state.parity, true, true};
    C* h_next = State(row, state.parity);
    const bool saves = args_.gates != nullptr;
    ForwardRow<S> r = {};
    if (args_.kernel == nullptr) {
      r.gates_x = args_.gates_x + at * kGates * units_;
    } else {
      r.x = Input(row, args_.x + at * features_);
    }
    r.h = h;
    r.h_next = h_next;
    if (Cell::kHasCellState) r.c = c_ + row * row_stride_;
    r.work = work_ + row * Cell::kWorkRows * row_stride_;
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
      r.operands = h + row_stride_;
      r.operands_next = h_next + row_stride_;
    }
    return r;
  }

  // A step's inputs in the type that is computed in.
  const C* Input(int64_t row, const S* x) {
    if constexpr (kConvertsInputs) {
      C* converted = x_ + row * features_;
      CopyRow(converted, x, features_);
      return converted;
    } else {
      return x;
    }
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
    const C* panel = Panel(recurrent_packed_, units_, kPhase, p);
    const C* input_panel = Panel(input_packed_, features_, kPhase, p);
    const int64_t u = p * kLanes;
    ForEachTile(count, [&](int64_t first, int n) {
      const ForwardRow<S>* tile = rows + first;
      for (int r = 0; r < n; ++r) {
        cell_.template PrefetchRow<kGates>(tile[r], Cell::kFirstGate[kPhase],
                                           kVectors, u);
      }
      Sums<kPhase> x[kTileRows];
      Sums<kPhase> sums[kTileRows];
      const auto product = Products<C>::kPlain[n - 1][kVectors - 1];
      const C* operands[kTileRows];
      if (args_.kernel != nullptr) {
        for (int r = 0; r < n; ++r) operands[r] = tile[r].x;
        product(operands, features_, input_panel, &x[0][0]);
      }
      if (kPhase == 1) {
        // The second phase's operand, which the first one made.
        for (int r = 0; r < n; ++r) operands[r] = tile[r].work + row_stride_;
        product(operands, units_, panel, &sums[0][0]);
      } else if (operand_copies_ == 0) {
        for (int r = 0; r < n; ++r) operands[r] = tile[r].h;
        product(operands, units_, panel, &sums[0][0]);
      } else {
        for (int r = 0; r < n; ++r) operands[r] = tile[r].operands;
        Products<C>::kPerVector[n - 1][kVectors - 1](
            operands, row_stride_, units_, panel, &sums[0][0]);
      }
      if (units_ - u >= kLanes) {
        Finish<kPhase>(tile, n, sums, x, u, FullLanes{});
      } else {
        Finish<kPhase>(tile, n, sums, x, u,
                       FirstLanes{static_cast<int>(units_ - u)});
      }
    });
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
  const int64_t row_stride_;
  const int operand_copies_;
  const RowSplit split_;
  Cell cell_;

  // In the scratch memory:
  C* recurrent_packed_;  // by phase: (panels, U, gates, lanes)
  C* input_packed_;      // by phase: (panels, F, gates, lanes)
  C* bias_;              // (GU)
  C* recurrent_bias_;    // (GU)
  C* h_;                 // (B, 2, 1 + copies, stride)
  C* c_;                 // (B, stride)
  C* x_;                 // (B, F) where S is not C
  C* work_;              // (B, work rows, stride)
  RowState* row_states_;
  ForwardRow<S>* step_rows_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_FORWARD_H_
