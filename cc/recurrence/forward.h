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
#include "forward_rows.h"
#include "layout.h"
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

  ForwardPass(const ForwardArgs<S>& args, decltype(Cell::functions) functions,
              int team_size)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        features_(args.kernel == nullptr ? 0 : args.features),
        depth_(kGates * (units_ + features_)),
        recurrent_weights_(args.recurrent_kernel, units_, units_,
                           FewProducts()),
        input_weights_(args.kernel, features_, units_, FewProducts()),
        sharers_(ChooseSharers(batch_, units_, depth_, sizeof(P), panels(),
                               team_size)),
        // In place, short runs of columns are slow to read.
        chunks_(
            recurrent_weights_.in_place()
                ? sharers_
                : ChooseChunks(sharers_, units_, depth_, sizeof(P), panels())),
        split_(batch_,
               ChooseBlocks(batch_, steps_, units_, depth_, sizeof(P),
                            (2 * kGates + 4) * units_ * sizeof(C), team_size)),
        rows_(args, recurrent_weights_.depth(), input_weights_.depth()) {
    cell_.functions = functions;
    cell_.units = units_;
    cell_.operand_stride = rows_.operand_stride();
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
      for (int64_t row = 0; row < batch_; ++row) rows_.Start(row);
      stages_.Begin(steps_ * Cell::kPhases, stage_chunks_, chunks_);
      Prepare(0);
      RunTasks<&ForwardPass::Share>(team, sharers_, this);
    } else {
      RunTasks<&ForwardPass::RunBlock>(team, split_.blocks(), this);
    }
  }

 private:
  // One row's sums in a tile.
  template <int kPhase>
  using Sums = V[Cell::kGateCount[kPhase]];

  int64_t panels() const { return recurrent_weights_.panels(); }

  void Place(Arena& arena) {
    recurrent_weights_.Place(arena);
    input_weights_.Place(arena);
    bias_ = arena.template Take<C>(kGates * units_);
    recurrent_bias_ = arena.template Take<C>(kGates * units_);
    rows_.Place(arena);
    const int64_t sums = batch_ * recurrent_weights_.SumsWidth();
    const bool in_place = recurrent_weights_.in_place();
    sums_ = arena.template Take<C>(in_place ? sums : 0);
    x_sums_ =
        arena.template Take<C>(in_place && args_.kernel != nullptr ? sums : 0);
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
    const int64_t few = IsResident(units_, depth_, sizeof(P))
                            ? kUnpackedProducts
                            : kUnpackedLargeProducts;
    return args_.recurrent_dropout == nullptr &&
           steps_ * CeilDiv<int64_t>(batch_, kTileRows) <= few;
  }

  void PackAll(Team& team) {
    SetRow(bias_, args_.bias, kGates * units_);
    SetRow(recurrent_bias_, args_.recurrent_bias, kGates * units_);
    if (recurrent_weights_.in_place()) return;
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

  void RunBlock(int block) {
    const int64_t begin = split_.FirstRow(block);
    const int64_t end = split_.FirstRow(block + 1);
    for (int64_t row = begin; row < end; ++row) rows_.Start(row);
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t count = TakeRows(step, begin, end);
      RunPanels<0>(0, panels(), begin, count);
      if constexpr (Cell::kPhases == 2) {
        RunPanels<1>(0, panels(), begin, count);
      }
    }
    for (int64_t row = begin; row < end; ++row) rows_.Finish(row);
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
      for (int64_t row = 0; row < batch_; ++row) rows_.Finish(row);
    } else if (stage % Cell::kPhases == 0) {
      shared_count_ = TakeRows(stage / Cell::kPhases, 0, batch_);
    }
  }

  // Rows [begin, end) at a step: puts those that take it into step_rows_, from
  // `begin` on, and returns how many they are.
  int64_t TakeRows(int64_t step, int64_t begin, int64_t end) {
    ForwardRow<S>* active = step_rows_ + begin;
    int64_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const bool is_masked = rows_.IsMasked(row, step);
      if (is_masked) rows_.Skip(row, step);
      rows_.Reset(row, step);
      if (!is_masked) active[count++] = rows_.Take(row, step);
    }
    return count;
  }

  // A phase of a step, for `count` of the step's rows from `begin` on.
  template <int kPhase>
  void RunPanels(int64_t first, int64_t last, int64_t begin, int64_t count) {
    const ForwardRow<S>* rows = step_rows_ + begin;
    C* sums = sums_ + begin * recurrent_weights_.SumsWidth();
    C* x_sums = x_sums_ + begin * recurrent_weights_.SumsWidth();
    if constexpr (Products<S>::kHasInPlace) {
      if (recurrent_weights_.in_place()) {
        recurrent_weights_.template SumsInPlace<kPhase>(
            [&](int64_t i) { return Operand<kPhase>(rows[i]); }, count, first,
            last, sums);
        if (args_.kernel != nullptr) {
          input_weights_.template SumsInPlace<kPhase>(
              [&](int64_t i) { return rows[i].x; }, count, first, last, x_sums);
        }
      }
    }
    for (int64_t p = first; p < last; ++p) {
      RunPanel<kPhase>(p, rows, count, sums, x_sums);
    }
  }

  // `all_sums` and `all_x_sums`: of the rows, where products were in place.
  template <int kPhase>
  void RunPanel(int64_t p, const ForwardRow<S>* rows, int64_t count,
                C* all_sums, C* all_x_sums) {
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
      if (recurrent_weights_.in_place()) {
        LoadSums<kPhase>(all_sums, p, first, n, sums);
        if (args_.kernel != nullptr) {
          LoadSums<kPhase>(all_x_sums, p, first, n, x);
        }
      } else {
        Multiply<kPhase>(p, turn, tile, n, sums, x);
      }
      if (units_ - u >= kLanes) {
        Finish<kPhase>(tile, n, sums, x, u, FullLanes{});
      } else {
        Finish<kPhase>(tile, n, sums, x, u,
                       FirstLanes{static_cast<int>(units_ - u)});
      }
    });
  }

  template <int kPhase>
  ECORNN_INLINE void LoadSums(C* from, int64_t p, int64_t first, int n,
                              Sums<kPhase>* sums) const {
    const ForwardWeights<Cell>& weights = recurrent_weights_;
    for (int r = 0; r < n; ++r) {
      C* row = from + (first + r) * weights.SumsWidth();
      for (int v = 0; v < Cell::kGateCount[kPhase]; ++v) {
        sums[r][v] = Load(weights.Sums(row, Cell::kFirstGate[kPhase] + v, p));
      }
    }
  }

  // A tile's products with packed weights.
  template <int kPhase>
  ECORNN_INLINE void Multiply(int64_t p, Turn turn, const ForwardRow<S>* tile,
                              int n, Sums<kPhase>* sums,
                              Sums<kPhase>* x) const {
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
          operands, rows_.operand_stride(), n, p, &sums[0][0]);
    }
  }

  // What a phase multiplies of a row.
  template <int kPhase>
  static const P* Operand(const ForwardRow<S>& row) {
    if (kPhase == 1) return row.phase_operand;
    if constexpr (sizeof(P) == sizeof(C)) {
      if (row.operands == nullptr) return row.h;
    }
    return row.operands;
  }

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
  const int64_t depth_;  // of a step's products for one row and unit
  ForwardWeights<Cell> recurrent_weights_;
  ForwardWeights<Cell> input_weights_;
  const int sharers_;  // threads that share all rows; 1: each takes blocks
  const int chunks_;
  const RowSplit split_;
  Cell cell_;
  ForwardRows<Cell> rows_;
  Stages stages_;
  int64_t shared_count_;  // rows that take the shared step

  // In the scratch memory:
  C* bias_;            // (GU)
  C* recurrent_bias_;  // (GU)
  C* sums_;            // (B, G, U in whole panels) of h where products are in
  C* x_sums_;          // place, and of x
  ForwardRow<S>* step_rows_;
  Stages::Chunk* stage_chunks_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_FORWARD_H_
