// The product that takes the gradient of a state from that of the next step's
// gates: d_gates Uᵀ.
#ifndef TF_ECORNN_CC_RECURRENCE_STATE_PRODUCT_H_
#define TF_ECORNN_CC_RECURRENCE_STATE_PRODUCT_H_

#include "cell/rows.h"
#include "layout.h"
#include "product.h"
#include "weights.h"

namespace ecornn {
namespace ECORNN_TARGET {

// For units of panel p, sums (rows, vectors of the panel).
template <class Cell>
class StateProduct {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  using V = typename Simd<C>::Vector;
  using Row = BackwardRow<S>;
  StateProduct(const BackwardWeights<Cell>& weights, int64_t units,
               bool has_dropout)
      : weights_(weights),
        units_(units),
        stride_(weights.depth()),
        has_dropout_(has_dropout) {}

  // Whether rows should be taken through the panels gate by gate: for recurrent
  // dropout, or where weights come from beyond the second-level cache.
  bool by_gate() const { return has_dropout_ || weights_.is_large(); }

  // Rows that are taken by gate at once: their operands of one gate and a panel
  // should stay in the second-level cache.
  int64_t rows_at_once() const {
    return MaxOf<int64_t>(
        kTileRows,
        static_cast<int64_t>(kResidentOperands / (stride_ * sizeof(P))));
  }

  // Of one tile's rows.
  template <int kPhase>
  ECORNN_INLINE void OfTile(int64_t p, const Row* rows, int n, V* sums) const {
    const P* operands[kTileRows];
    SetOperands<kPhase>(0, rows, n, operands);
    const P* panel = weights_.Panel(Cell::kFirstGate[kPhase], p);
    Products<S>::Plain(n, weights_.Vectors(p), operands,
                       Cell::kGateCount[kPhase] * stride_, panel, {panel, 0},
                       sums);
  }

  // Of rows and panels [first_panel, last_panel): all meet
  // a gate's weights before the next one's, so that the operands of one gate
  // alone have to stay close. `memory` is for kTileVectors sums a row and
  // panel. Around the last gate's product of a tile calls prefetch(p, first
  // row, rows) and finish(p, first row, rows, sums).
  template <int kPhase, class Prefetch, class Finish>
  void ByGate(int64_t first_panel, int64_t last_panel, const Row* rows,
              int64_t count, V* memory, const Prefetch& prefetch,
              const Finish& finish) const {
    constexpr int kGates = Cell::kGateCount[kPhase];
    for (int g = 0; g < kGates; ++g) {
      const int gate = Cell::kFirstGate[kPhase] + g;
      const bool last = g + 1 == kGates;
      for (int64_t p = first_panel; p < last_panel; ++p) {
        const int vectors = weights_.Vectors(p);
        const P* panel = weights_.Panel(gate, p);
        const P* next =
            p + 1 < last_panel ? weights_.Panel(gate, p + 1)
            : last ? weights_.Panel(Cell::kFirstGate[kPhase], first_panel)
                   : weights_.Panel(gate + 1, first_panel);
        V* sums = memory + p * count * kTileVectors;
        ForEachTile(count, [&](Turn tile, int64_t first, int n) {
          if (last) prefetch(p, first, n);
          const P* operands[kTileRows];
          SetOperands<kPhase>(g, rows + first, n, operands);
          V part[kTileRows * kTileVectors];
          Products<S>::Plain(n, vectors, operands, stride_, panel,
                             weights_.Next(p, panel, next, tile), part);
          if (has_dropout_ && kPhase == 0) {
            for (int r = 0; r < n; ++r) {
              Keep(rows[first + r].dropout + g * units_, p, vectors,
                   part + r * vectors);
            }
          }
          V* sum = sums + first * vectors;
          for (int i = 0; i < n * vectors; ++i) {
            if (g > 0) part[i] += sum[i];
            if (!last) sum[i] = part[i];
          }
          if (last) finish(p, first, n, part);
        });
      }
    }
  }

 private:
  // Gate g of those that a phase's rows multiply.
  template <int kPhase>
  ECORNN_INLINE void SetOperands(int g, const Row* rows, int n,
                                 const P** operands) const {
    for (int r = 0; r < n; ++r) {
      if constexpr (kPhase == 1) {
        // The candidate's gradient of this very step.
        operands[r] = rows[r].grad_z + (Cell::kFirstGate[1] + g) * stride_;
      } else {
        operands[r] = rows[r].grad_z_later + g * stride_;
      }
    }
  }

  // Multiplies a row's part by the mask that the gate's operand carried.
  ECORNN_INLINE void Keep(const S* dropout, int64_t p, int vectors,
                          V* part) const {
    constexpr int kLanes = Simd<C>::kLanes;
    for (int v = 0; v < vectors; ++v) {
      const int64_t u = (p * kTileVectors + v) * kLanes;
      const FirstLanes lanes{
          static_cast<int>(MinOf<int64_t>(kLanes, units_ - u))};
      part[v] *= lanes.Load(dropout + u);
    }
  }

  const BackwardWeights<Cell>& weights_;
  const int64_t units_;
  const int64_t stride_;  // U in whole groups
  const bool has_dropout_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_STATE_PRODUCT_H_
