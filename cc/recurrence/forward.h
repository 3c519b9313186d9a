// The forward pass: packs the recurrent weights, then takes blocks of rows
// through the sequence.
//
//   for each step
//     for each phase of the cell          LSTM: one
//       for each panel of units           one vector of units of every gate
//         for each tile of active rows    sums in registers, then the cell
//
// The inputs' own product is either ready, or one more sum of each tile.
// Threads take blocks of rows, or share each step's panels (stages.h).
#ifndef TF_ECORNN_CC_RECURRENCE_FORWARD_H_
#define TF_ECORNN_CC_RECURRENCE_FORWARD_H_

#include "cell/rows.h"
#include "engine.h"
#include "layout.h"
#include "masked_run.h"
#include "product.h"
#include "stages.h"
#include "weights.h"

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
  static constexpr bool kStateIsOperand = sizeof(P) == sizeof(C);

  ForwardPass(const ForwardArgs<S>& args, decltype(Cell::functions) functions,
              int team_size)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        features_(args.kernel == nullptr ? 0 : args.features),
        recurrent_weights_(args.recurrent_kernel, units_, units_,
                           FewProducts()),
        input_weights_(args.kernel, features_, units_, FewProducts()),
        row_stride_(RowStride<C>(units_)),
        operand_stride_(RowStride<P>(recurrent_weights_.depth())),
        operand_copies_(args.recurrent_dropout != nullptr ? kGates
                        : kStateIsOperand                 ? 0
                                                          : 1),
        copies_inputs_(sizeof(S) != sizeof(P) ||
                       input_weights_.depth() != features_),
        sharers_(ChooseSharers(batch_, units_, kGates * (units_ + features_),
                               sizeof(P), panels(), team_size)),
        chunks_(ChooseChunks(sharers_, units_, kGates * (units_ + features_),
                             sizeof(P), panels())),
        split_(batch_,
               ChooseBlocks(batch_, steps_, units_,
                            kGates * (units_ + features_), sizeof(P),
                            (2 * kGates + 4) * units_ * sizeof(C), team_size)) {
    cell_.functions = functions;
    cell_.units = units_;
    cell_.operand_stride = operand_stride_;
    cell_.streams = Cell::kCanStream && sharers_ == 1 && Streams();
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
    if (sharers_ > 1) {
      StartRows(0, batch_);
      stages_.Begin(steps_ * Cell::kPhases, stage_chunks_, chunks_);
      Prepare(0);
      RunProducts<&ForwardPass::Share>(team, sharers_, this);
    } else {
      RunProducts<&ForwardPass::RunBlock>(team, split_.blocks(), this);
    }
  }

 private:
  // What the loop keeps of a row between steps.
  struct RowState {
    int parity;       // which of the two state buffers holds the current state
    bool active;      // the last processed step was valid
    bool has_output;  // some processed step was valid
  };

  int64_t panels() const { return recurrent_weights_.panels(); }

  void Place(Arena& arena) {
    recurrent_weights_.Place(arena);
    input_weights_.Place(arena);
    bias_ = arena.template Take<C>(kGates * units_);
    recurrent_bias_ = arena.template Take<C>(kGates * units_);
    h_ = arena.template Take<C>(2 * batch_ * row_stride_);
    operands_ =
        arena.template Take<P>(2 * batch_ * operand_copies_ * operand_stride_);
    c_ = arena.template Take<C>(Cell::kHasCellState ? batch_ * row_stride_ : 0);
    x_ = arena.template Take<P>(copies_inputs_ ? batch_ * input_weights_.depth()
                                               : 0);
    constexpr bool kTwoPhases = Cell::kPhases == 2;
    update_gates_ =
        arena.template Take<C>(kTwoPhases ? batch_ * row_stride_ : 0);
    phase_operands_ =
        arena.template Take<P>(kTwoPhases ? batch_ * operand_stride_ : 0);
    row_states_ = arena.template Take<RowState>(batch_);
    step_rows_ = arena.template Take<ForwardRow<S>>(batch_);
    stage_chunks_ =
        arena.template Take<Stages::Chunk>(sharers_ > 1 ? chunks_ : 0);
    cell_.bias = bias_;
    cell_.recurrent_bias = recurrent_bias_;
  }

  // Whether what is saved should go past the caches.
  bool Streams() const {
    const int64_t saved =
        kGates + 1 + Cell::kHasCellState + Cell::kSavesCandidate;
    const double bytes = double(batch_) * steps_ * units_ * saved * sizeof(S);
    const auto is_aligned = [](const void* array) {
      return reinterpret_cast<uintptr_t>(array) % 64 == 0;
    };
    return args_.gates != nullptr && args_.gates != args_.gates_x &&
           bytes > kStreamedBytes && units_ % kLanes == 0 &&
           is_aligned(args_.gates) && is_aligned(args_.previous_h) &&
           is_aligned(args_.previous_c) && is_aligned(args_.candidate);
  }

  // Packing costs as much as some products.
  bool FewProducts() const {
    return args_.recurrent_dropout == nullptr &&
           steps_ * CeilDiv<int64_t>(batch_, kTileRows) <= kUnpackedProducts;
  }

  void PackAll(Team& team) {
    SetRow(bias_, args_.bias, kGates * units_);
    SetRow(recurrent_bias_, args_.recurrent_bias, kGates * units_);
    // Copying is cheap: only of a large matrix is it worth a second thread.
    if (units_ >= 256 && team.size() > 1) {
      RunTasks<&ForwardPass::Pack>(team, static_cast<int>(panels()), this);
    } else {
      for (int p = 0; p < panels(); ++p) Pack(p);
    }
  }

  void Pack(int panel) {
    recurrent_weights_.Pack(panel);
    input_weights_.Pack(panel);
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
    StartRows(begin, end);
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t count = TakeRows(step, begin, end);
      RunPanels<0>(0, panels(), begin, count);
      if constexpr (Cell::kPhases == 2) {
        RunPanels<1>(0, panels(), begin, count);
      }
    }
    FinishRows(begin, end);
    if (cell_.streams) FinishStreaming();
  }

  // One of the threads that share all rows.
  void Share(int sharer) {
    stages_.Work(
        chunks_ * sharer / sharers_, [&](int64_t stage) { Prepare(stage); },
        [&](int64_t stage, int chunk) {
          const int64_t first = panels() * chunk / chunks_;
          const int64_t last = panels() * (chunk + 1) / chunks_;
          if constexpr (Cell::kPhases == 2) {
            if (stage % 2 == 1) {
              RunPanels<1>(first, last, 0, shared_count_);
              return;
            }
          }
          RunPanels<0>(first, last, 0, shared_count_);
        });
  }

  // What comes before a stage, and after the last.
  void Prepare(int64_t stage) {
    if (stage == steps_ * Cell::kPhases) {
      FinishRows(0, batch_);
    } else if (stage % Cell::kPhases == 0) {
      shared_count_ = TakeRows(stage / Cell::kPhases, 0, batch_);
    }
  }

  void StartRows(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      row_states_[row] = {0, false, false};
      SetState(row, 0, args_.initial_h + row * units_);
      EndOperands(row);
      if (Cell::kHasCellState) {
        SetRow(c_ + row * row_stride_, args_.initial_c + row * units_, units_);
      }
    }
  }

  // Rows [begin, end) at a step: puts those that take it into step_rows_, from
  // `begin` on, and returns how many they are.
  int64_t TakeRows(int64_t step, int64_t begin, int64_t end) {
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
    return count;
  }

  // A phase of a step, for `count` of the step's rows from `begin` on.
  template <int kPhase>
  void RunPanels(int64_t first, int64_t last, int64_t begin, int64_t count) {
    for (int64_t p = first; p < last; ++p) {
      RunPanel<kPhase>(p, step_rows_ + begin, count);
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
    P* copy = x_ + row * input_weights_.depth();
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
    if (args_.gates != nullptr) ClearRun(row, at - row * steps_);
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

  void FinishRows(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) FinishRow(row);
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
    const int64_t u = p * kLanes;
    ForEachTile(count, [&](Turn turn, int64_t first, int n) {
      const ForwardRow<S>* tile = rows + first;
      for (int r = 0; r < n; ++r) {
        cell_.template PrefetchRow<kGates>(tile[r], Cell::kFirstGate[kPhase],
                                           kVectors, u);
      }
      Sums<kPhase> x[kTileRows];
      Sums<kPhase> sums[kTileRows];
      const P* operands[kTileRows];
      if (args_.kernel != nullptr) {
        for (int r = 0; r < n; ++r) operands[r] = tile[r].x;
        input_weights_.template Product<kPhase>(operands, n, p, turn, &x[0][0]);
      }
      for (int r = 0; r < n; ++r) operands[r] = Operand<kPhase>(tile[r]);
      if (kPhase == 1 || args_.recurrent_dropout == nullptr) {
        recurrent_weights_.template Product<kPhase>(operands, n, p, turn,
                                                    &sums[0][0]);
      } else {
        recurrent_weights_.template ProductByGate<kPhase>(
            operands, operand_stride_, n, p, &sums[0][0]);
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
  ForwardWeights<Cell> recurrent_weights_;
  ForwardWeights<Cell> input_weights_;
  const int64_t row_stride_;
  const int64_t operand_stride_;
  const int operand_copies_;
  const bool copies_inputs_;
  const int sharers_;  // threads that share all rows; 1: each takes blocks
  const int chunks_;
  const RowSplit split_;
  Cell cell_;
  Stages stages_;
  int64_t shared_count_;  // rows that take the shared step

  // In the scratch memory:
  C* bias_;            // (GU)
  C* recurrent_bias_;  // (GU)
  C* h_;               // (B, 2, stride)
  P* operands_;        // (B, 2, copies, operand stride)
  C* c_;               // (B, stride)
  P* x_;               // (B, input depth) where inputs are copied
  C* update_gates_;    // (B, stride) between two phases
  P* phase_operands_;  // (B, operand stride) between two phases
  RowState* row_states_;
  ForwardRow<S>* step_rows_;
  Stages::Chunk* stage_chunks_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_FORWARD_H_
