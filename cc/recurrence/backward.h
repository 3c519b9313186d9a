// The backward pass: packs the transposed recurrent weights, then takes blocks
// of rows back through the sequence.
//
//   for each step, from the last
//     for each phase of the cell          LSTM: one
//       for each panel of units           transposed weights, up to 4 vectors
//         for each tile of active rows    gradient of the state in registers,
//                                         then the cell's derivative
#ifndef TF_ECORNN_CC_RECURRENCE_BACKWARD_H_
#define TF_ECORNN_CC_RECURRENCE_BACKWARD_H_

#include "backward_rows.h"
#include "bias_sums.h"
#include "cell/rows.h"
#include "engine.h"
#include "layout.h"
#include "product.h"
#include "stages.h"
#include "state_product.h"
#include "weights.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class Cell>
class BackwardPass {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  using V = typename Simd<C>::Vector;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr int64_t kPanelWidth = BackwardWeights<Cell>::kPanelWidth;

  BackwardPass(const BackwardArgs<S>& args, decltype(Cell::functions) functions,
               int team_size)
      : args_(args),
        batch_(args.sequence.batch),
        steps_(args.sequence.steps),
        units_(args.sequence.units),
        width_(kGates * units_),
        weights_(args.recurrent_kernel, units_),
        product_(weights_, units_, args.recurrent_dropout != nullptr),
        sharers_(ChooseSharers(batch_, units_, width_, sizeof(P), panels(),
                               team_size)),
        chunks_(ChooseChunks(sharers_, units_, width_, sizeof(P), panels())),
        split_(batch_,
               ChooseBlocks(batch_, steps_, units_, width_, sizeof(P),
                            (4 * kGates + 4) * units_ * sizeof(C), team_size)),
        rows_(args, weights_.depth(),
              double(split_.LargestBlock()) * width_ * sizeof(S) <=
                  kPrefetchedBytes),
        bias_sums_(args, split_.groups()) {
    cell_.functions = functions;
    cell_.units = units_;
    cell_.gate_stride = weights_.depth();
  }

  size_t scratch_bytes() {
    Arena arena(nullptr);
    Place(arena);
    return arena.used();
  }

  void Run(void* scratch, Team& team) {
    Arena arena(scratch);
    Place(arena);
    if (batch_ > 0) {
      rows_.Clear();
      PackAll(team);
      if (sharers_ > 1) {
        StartGroups(0, split_.groups());
        stages_.Begin(stages() + 1, stage_chunks_, chunks_);
        Prepare(0);
        RunTasks<&BackwardPass::Share>(team, sharers_, this);
      } else {
        RunTasks<&BackwardPass::RunBlock>(team, split_.blocks(), this);
      }
    }
    bias_sums_.Write();
  }

 private:
  // Rows in step_rows_.
  struct Taken {
    int64_t count;
    bool any_product;  // a later step read the state of one of them
  };

  int64_t panels() const { return weights_.panels(); }

  void Place(Arena& arena) {
    weights_.Place(arena);
    rows_.Place(arena);
    bias_sums_.Place(arena);
    sums_ = arena.template Take<V>(
        product_.by_gate() ? batch_ * panels() * kTileVectors : 0);
    step_rows_ = arena.template Take<BackwardRow<S>>(batch_);
    stage_chunks_ =
        arena.template Take<Stages::Chunk>(sharers_ > 1 ? chunks_ : 0);
  }

  void PackAll(Team& team) {
    if (steps_ == 0) return;
    if (units_ >= 128 && team.size() > 1) {
      RunTasks<&BackwardPass::Pack>(team, static_cast<int>(panels()), this);
    } else {
      for (int p = 0; p < panels(); ++p) Pack(p);
    }
  }

  void Pack(int panel) { weights_.Pack(panel); }

  void RunBlock(int block) {
    const int64_t first_group = split_.FirstGroup(block);
    const int64_t last_group = split_.FirstGroup(block + 1);
    const int64_t begin = split_.FirstRow(block);
    StartGroups(first_group, last_group);
    for (int64_t step = steps_ - 1; step >= 0; --step) {
      const Taken taken = TakeRows(step, first_group, last_group);
      RunPanels<0>(0, panels(), begin, taken);
      if constexpr (Cell::kPhases == 2) {
        RunPanels<1>(0, panels(), begin, taken);
      }
      DropStates(step, first_group, last_group);
    }
    const Taken all = TakeAll(begin, split_.FirstRow(block + 1));
    RunPanels<kInitial>(0, panels(), begin, all);
  }

  // One of the threads that share all rows.
  void Share(int sharer) {
    stages_.Work(
        chunks_ * sharer / sharers_, [&](int64_t stage) { Prepare(stage); },
        [&](int64_t stage, int chunk) {
          const int64_t first = panels() * chunk / chunks_;
          const int64_t last = panels() * (chunk + 1) / chunks_;
          if (stage == stages()) {
            RunPanels<kInitial>(first, last, 0, shared_);
            return;
          }
          if constexpr (Cell::kPhases == 2) {
            if (stage % 2 == 1) {
              RunPanels<1>(first, last, 0, shared_);
              return;
            }
          }
          RunPanels<0>(first, last, 0, shared_);
        });
  }

  // Stages of steps; one more makes the gradients of the initial states.
  int64_t stages() const { return steps_ * Cell::kPhases; }

  // What comes before a stage.
  void Prepare(int64_t stage) {
    if (stage > stages() || stage % Cell::kPhases != 0) return;
    const int64_t step = steps_ - 1 - stage / Cell::kPhases;
    if (stage > 0) DropStates(step + 1, 0, split_.groups());
    shared_ = stage == stages() ? TakeAll(0, batch_)
                                : TakeRows(step, 0, split_.groups());
  }

  void StartGroups(int64_t first_group, int64_t last_group) {
    bias_sums_.Clear(first_group, last_group);
    const int64_t end = split_.FirstRowOfGroup(last_group);
    for (int64_t row = split_.FirstRowOfGroup(first_group); row < end; ++row) {
      rows_.Start(row);
    }
  }

  // Rows of some groups at a step: puts those that take it into step_rows_,
  // from the groups' first row on.
  Taken TakeRows(int64_t step, int64_t first_group, int64_t last_group) {
    BackwardRow<S>* active = step_rows_ + split_.FirstRowOfGroup(first_group);
    int64_t count = 0;
    bool any_product = false;
    for (int64_t group = first_group; group < last_group; ++group) {
      const int64_t end = split_.FirstRowOfGroup(group + 1);
      for (int64_t row = split_.FirstRowOfGroup(group); row < end; ++row) {
        if (rows_.IsMasked(row, step)) {
          rows_.Skip(row, step);
        } else {
          any_product |= rows_.HasProduct(row);
          active[count++] = rows_.Take(row, step, bias_sums_.Group(group));
        }
      }
    }
    return {count, any_product};
  }

  // A phase of a step for the rows taken, which lie from `begin` on.
  template <int kPhase>
  void RunPanels(int64_t first, int64_t last, int64_t begin, Taken taken) {
    const BackwardRow<S>* rows = step_rows_ + begin;
    const bool any_product = kPhase == 1 || taken.any_product;
    if (any_product && product_.by_gate()) {
      RunByGate<kPhase>(first, last, begin, taken.count);
      return;
    }
    for (int64_t p = first; p < last; ++p) {
      RunPanel<kPhase>(p, any_product, rows, taken.count);
    }
  }

  template <int kPhase>
  void RunByGate(int64_t first_panel, int64_t last_panel, int64_t begin,
                 int64_t count) {
    constexpr int q = kPhase == kInitial ? 0 : kPhase;
    const int64_t parts = CeilDiv(count, product_.rows_at_once());
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = count * part / parts;
      const BackwardRow<S>* rows = step_rows_ + begin + first;
      product_.template ByGate<q>(
          first_panel, last_panel, rows, count * (part + 1) / parts - first,
          sums_ + (begin + first) * panels() * kTileVectors,
          [&](int64_t p, int64_t i, int n) {
            PrefetchRows<kPhase>(p, rows + i, n);
          },
          [&](int64_t p, int64_t i, int n, const V* sums) {
            FinishTile<kPhase>(p, rows + i, n, sums);
          });
    }
  }

  // After a step: what its resets cut off.
  void DropStates(int64_t step, int64_t first_group, int64_t last_group) {
    if (args_.reset == nullptr) return;
    const int64_t end = split_.FirstRowOfGroup(last_group);
    for (int64_t row = split_.FirstRowOfGroup(first_group); row < end; ++row) {
      rows_.DropReset(row, step);
    }
  }

  // All rows, for the gradients of the initial states.
  Taken TakeAll(int64_t begin, int64_t end) {
    BackwardRow<S>* rows = step_rows_ + begin;
    bool any_product = false;
    for (int64_t row = begin; row < end; ++row) {
      any_product |= rows_.HasProduct(row);
      rows[row - begin] = rows_.TakeInitial(row);
    }
    return {end - begin, any_product};
  }

  // In place of a phase: the gradient is the initial state's own.
  static constexpr int kInitial = -1;

  template <int kPhase>
  void RunPanel(int64_t p, bool any_product, const BackwardRow<S>* rows,
                int64_t count) {
    constexpr int q = kPhase == kInitial ? 0 : kPhase;
    V sums[kTileRows * kTileVectors];
    ForEachTile(count, [&](Turn, int64_t first, int n) {
      PrefetchRows<kPhase>(p, rows + first, n);
      if (any_product) {
        product_.template OfTile<q>(p, rows + first, n, sums);
      } else {
        // Nothing comes from later steps.
        for (int i = 0; i < n * weights_.Vectors(p); ++i) sums[i] = V{};
      }
      FinishTile<kPhase>(p, rows + first, n, sums);
    });
  }

  template <int kPhase>
  ECORNN_INLINE void PrefetchRows(int64_t p, const BackwardRow<S>* rows,
                                  int n) const {
    if (kPhase == kInitial) return;
    for (int v = 0; v < weights_.Vectors(p); ++v) {
      for (int r = 0; r < n; ++r) {
        cell_.template PrefetchRow<kGates>(rows[r],
                                           p * kPanelWidth + v * kLanes);
      }
    }
  }

  template <int kPhase>
  ECORNN_INLINE void FinishTile(int64_t p, const BackwardRow<S>* rows, int n,
                                const V* sums) const {
    const int vectors = weights_.Vectors(p);
    for (int v = 0; v < vectors; ++v) {
      const int64_t u = p * kPanelWidth + v * kLanes;
      if (units_ - u >= kLanes) {
        Finish<kPhase>(rows, n, sums + v, vectors, u, FullLanes{});
      } else {
        Finish<kPhase>(rows, n, sums + v, vectors, u,
                       FirstLanes{static_cast<int>(units_ - u)});
      }
    }
  }

  template <int kPhase, class Lanes>
  __attribute__((noinline)) void Finish(const BackwardRow<S>* rows, int count,
                                        const V* sum, int stride, int64_t u,
                                        Lanes lanes) const {
    V spare[kTileRows];
    if constexpr (kPhase == kInitial) {
      for (int r = 0; r < count; ++r) {
        lanes.Store(rows[r].grad_gates + u,
                    StateGradient<0>(rows[r], sum[r * stride], u, lanes));
      }
    } else if constexpr (Cell::kParts[kPhase] == 1) {
      FinishPart<kPhase, 0>(rows, count, sum, stride, spare, u, lanes);
    } else {
      FinishPart<kPhase, 0>(rows, count, sum, stride, spare, u, lanes);
      FinishPart<kPhase, 1>(rows, count, sum, stride, spare, u, lanes);
    }
  }

  template <int kPhase, int kPart, class Lanes>
  ECORNN_INLINE void FinishPart(const BackwardRow<S>* rows, int count,
                                const V* sum, int stride, V* spare, int64_t u,
                                Lanes lanes) const {
    constexpr bool kLast = kPart == Cell::kParts[kPhase] - 1;
    for (int r = 0; r < count; ++r) {
      const V grad =
          kLast ? StateGradient<kPhase>(rows[r], sum[r * stride], u, lanes)
                : V{};
      cell_.template Finish<kPhase, kPart>(rows[r], grad, spare[r], u, lanes);
    }
  }

  // The product and what else leads to the gradient of a row's state.
  template <int kPhase, class Lanes>
  ECORNN_INLINE V StateGradient(const BackwardRow<S>& row, V grad, int64_t u,
                                Lanes lanes) const {
    if (kPhase != 0) return grad;
    if (row.direct != nullptr) grad += lanes.Load(row.direct + u);
    if (row.pending != nullptr) grad += lanes.Load(row.pending + u);
    if (row.grad_output != nullptr) grad += lanes.Load(row.grad_output + u);
    return grad;
  }

  const BackwardArgs<S>& args_;
  const int64_t batch_;
  const int64_t steps_;
  const int64_t units_;
  const int64_t width_;  // GU
  BackwardWeights<Cell> weights_;
  const StateProduct<Cell> product_;
  const int sharers_;  // threads that share all rows; 1: each takes blocks
  const int chunks_;
  const RowSplit split_;
  Cell cell_;
  BackwardRows<Cell> rows_;
  BiasSums<Cell> bias_sums_;
  Stages stages_;
  Taken shared_;

  // In the scratch memory:
  V* sums_;  // of the product by gate, kTileVectors for a row and panel
  BackwardRow<S>* step_rows_;
  Stages::Chunk* stage_chunks_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_BACKWARD_H_
