// The weights as the tiles take them: packed into panels, or where they lie.
#ifndef TF_ECORNN_CC_RECURRENCE_WEIGHTS_H_
#define TF_ECORNN_CC_RECURRENCE_WEIGHTS_H_

#include "layout.h"
#include "product.h"

namespace ecornn {
namespace ECORNN_TARGET {

// What a tile of a panel of `size` weights fetches of the next panel: all tiles
// together fetch it, at an even pace. By `engine_speed lstm float
// 1000,50,20,1`, with two multiply-adds a cycle: forward 132 GF/s, backward
// 127; 126 and 116 if the first few tiles fetch all.
template <class P>
ECORNN_INLINE Ahead NextPanel(const P* panel, int64_t groups, int64_t size,
                              Turn tile, const P* next) {
  constexpr int64_t kLine = 64 / sizeof(P);
  int64_t between = 1;
  while (between < 8 && 2 * between * size <= tile.count * groups * kLine) {
    between *= 2;
  }
  const int64_t begin = tile.index * (groups / between) * kLine;
  if (begin >= size) return {panel, 0};
  return {next + begin, 64, between * Multiply<P>::kGroup - 1};
}

// Weights (depth, GU) of the forward pass, of h or of x. A panel holds one
// vector of units of all gates of a phase:
//
//   phase by phase: (panels, depth / group, gates of the phase, lanes, group)
template <class Cell>
class ForwardWeights {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  using V = typename Simd<C>::Vector;
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr int kGroup = Multiply<P>::kGroup;

  // `weights` may be null: then there is nothing of them. `in_place`: not
  // packed, if that can be.
  ForwardWeights(const S* weights, int64_t depth, int64_t units, bool in_place)
      : weights_(weights),
        rows_(weights == nullptr ? 0 : depth),
        units_(units),
        in_place_(Products<S>::kHasInPlace && in_place),
        is_large_(!IsResident(units, rows_ * Cell::kGates, sizeof(P))) {}

  // Whether products are SumsInPlace; else they are those of packed weights.
  bool in_place() const { return in_place_; }
  // Operands' length.
  int64_t depth() const { return WholeGroups<P>(rows_); }
  int64_t panels() const { return CeilDiv<int64_t>(units_, kLanes); }

  void Place(Arena& arena) {
    packed_ = arena.template Take<P>(in_place_ ? 0 : depth() * SumsWidth());
  }

  // Panel p of each phase: of each row the weights of units [p * kLanes, ...).
  // Not where products are in place.
  void Pack(int64_t p) const {
    const int64_t u = p * kLanes;
    const int count = static_cast<int>(MinOf<int64_t>(kLanes, units_ - u));
    for (int q = 0; q < Cell::kPhases; ++q) {
      P* to = Panel(q, p);
      for (int64_t k = 0; k < rows_; k += kGroup) {
        for (int g = 0; g < Cell::kGateCount[q]; ++g, to += kLanes * kGroup) {
          const S* rows[kGroup];
          for (int i = 0; i < kGroup; ++i) {
            const int64_t gate = (k + i) * Cell::kGates + Cell::kFirstGate[q];
            rows[i] =
                k + i < rows_ ? weights_ + (gate + g) * units_ + u : nullptr;
          }
          Multiply<P>::Pack(rows, count, to);
        }
      }
      ZeroRow(to, Panel(q, p) + PanelSize(q) - to);
    }
  }

  // Sums (n, gates of the phase) of a tile of n operands and panel p.
  template <int kPhase>
  ECORNN_INLINE void Product(const P* const* operands, int n, int64_t p,
                             Turn tile, V* sums) const {
    constexpr int kVectors = Cell::kGateCount[kPhase];
    Products<S>::Plain(n, kVectors, operands, depth(), Panel(kPhase, p),
                       Next<kPhase>(p, tile), sums);
  }

  // The same where each gate has an operand of its own, `stride` from the last
  // one's.
  template <int kPhase>
  ECORNN_INLINE void ProductByGate(const P* const* operands, int64_t stride,
                                   int n, int64_t p, V* sums) const {
    Products<S>::PerVector(n, Cell::kGateCount[kPhase], operands, stride,
                           depth(), Panel(kPhase, p), sums);
  }

  // A row's sums, of all gates in whole panels.
  int64_t SumsWidth() const { return Cell::kGates * panels() * kLanes; }
  // Those of gate g and panel p.
  C* Sums(C* row, int g, int64_t p) const {
    return row + (g * panels() + p) * kLanes;
  }

  // Sums of `count` rows and panels [first_panel, last_panel), of weights where
  // they lie; operand(i) is row i's. Reads a gate's columns row by row: of
  // large weights each row is on a page of its own, which panels would visit
  // again and again.
  template <int kPhase, class Operand>
  void SumsInPlace(const Operand& operand, int64_t count, int64_t first_panel,
                   int64_t last_panel, C* sums) const {
    const int64_t stride = Cell::kGates * units_;
    for (int i = 0; i < Cell::kGateCount[kPhase]; ++i) {
      const int g = Cell::kFirstGate[kPhase] + i;
      for (int64_t p = first_panel; p < last_panel; p += kRunPanels) {
        const int64_t end = MinOf(p + kRunPanels, last_panel);
        const int64_t columns = MinOf(end * kLanes, units_) - p * kLanes;
        for (int64_t row = 0; row < count; ++row) {
          ZeroRow(Sums(sums + row * SumsWidth(), g, p), (end - p) * kLanes);
        }
        for (int64_t k = 0; k < rows_; k += kRunDepth) {
          ForEachTile(count, [&](Turn, int64_t first, int n) {
            const C* operands[kTileRows];
            for (int r = 0; r < n; ++r) operands[r] = operand(first + r) + k;
            Products<S>::InPlace(
                n, operands, MinOf(kRunDepth, rows_ - k),
                weights_ + k * stride + g * units_ + p * kLanes, stride,
                columns, Sums(sums + first * SumsWidth(), g, p), SumsWidth());
          });
        }
      }
    }
  }

 private:
  // In place, tiles take turns at so many columns and so much of the depth: the
  // weights stay in the second-level cache, a tile's sums in the first.
  static constexpr int64_t kRunPanels = 512 / kLanes;
  static constexpr int64_t kRunDepth = 32;

  // What a panel's tiles fetch beforehand: the next panel, where it comes from
  // beyond the second-level cache.
  template <int kPhase>
  ECORNN_INLINE Ahead Next(int64_t p, Turn tile) const {
    const P* panel = Panel(kPhase, p);
    if (!is_large_) return {panel, 0};
    return NextPanel(panel, depth() / kGroup, PanelSize(kPhase), tile,
                     Panel(kPhase, p + 1 < panels() ? p + 1 : 0));
  }

  int64_t PanelSize(int q) const {
    return depth() * Cell::kGateCount[q] * kLanes;
  }
  P* Panel(int q, int64_t p) const {
    return packed_ +
           depth() * kLanes *
               (panels() * Cell::kFirstGate[q] + p * Cell::kGateCount[q]);
  }

  const S* weights_;
  const int64_t rows_;
  const int64_t units_;
  const bool in_place_;
  const bool is_large_;
  P* packed_;
};

// The recurrent kernel, transposed, for the backward pass. A panel holds up to
// four vectors of units, of which a phase's gates' gradients make the state's:
//
//   phase by phase: (panels, gates of the phase, U / group, width of the panel,
//   group)
template <class Cell>
class BackwardWeights {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;
  using P = ProductType<S>;
  static constexpr int kLanes = Simd<C>::kLanes;
  static constexpr int kGroup = Multiply<P>::kGroup;
  static constexpr int64_t kPanelWidth = kTileVectors * kLanes;

  BackwardWeights(const S* recurrent_kernel, int64_t units)
      : kernel_(recurrent_kernel),
        units_(units),
        is_large_(!IsResident(units, units * Cell::kGates, sizeof(P))) {}

  // Whether they come from beyond the second-level cache in each step.
  bool is_large() const { return is_large_; }

  // Operands' length for one gate.
  int64_t depth() const { return WholeGroups<P>(units_); }
  int64_t panels() const { return CeilDiv(units_, kPanelWidth); }
  // Vectors in panel p: four, or as many as the last units need.
  int Vectors(int64_t p) const {
    const int64_t rest = units_ - p * kPanelWidth;
    return static_cast<int>(
        MinOf<int64_t>(kTileVectors, CeilDiv<int64_t>(rest, kLanes)));
  }

  void Place(Arena& arena) {
    packed_ = arena.template Take<P>(Width() * Cell::kGates * depth());
  }

  // Panel p of each phase: rows of the kernel turned into columns, zero past U.
  void Pack(int64_t p) const {
    const int64_t first = p * kPanelWidth;
    const int64_t width = Vectors(p) * kLanes;
    for (int g = 0; g < Cell::kGates; ++g) {
      P* to = Gate(g, p);
      // Few k at a time: their lines of the panel stay in the cache.
      for (int64_t k = 0; k < depth(); k += kRun) {
        P* run = to + k * width;
        const int64_t count = MinOf(kRun, depth() - k);
        for (int64_t i = 0; i < width; ++i) {
          const int64_t u = first + i;
          const S* from = kernel_ + (u * Cell::kGates + g) * units_ + k;
          if (u < units_ && k + kRun <= units_) {
            PackRun(from, kRun, width, run + i * kGroup);
          } else {
            const int64_t there =
                u < units_ && k < units_ ? MinOf(kRun, units_ - k) : 0;
            PackRun(from, there, width, run + i * kGroup);
            for (int64_t j = there; j < count; ++j) {
              ZeroRow(run + (j / kGroup * width + i) * kGroup + j % kGroup, 1);
            }
          }
        }
      }
    }
  }

  // Where panel p's weights of gate g begin; those of its phase's next follow.
  const P* Panel(int g, int64_t p) const { return Gate(g, p); }

  // What tiles of a gate's panel p fetch beforehand: the one that comes next,
  // where weights are large.
  Ahead Next(int64_t p, const P* panel, const P* next, Turn tile) const {
    if (!is_large_) return {panel, 0};
    return NextPanel(panel, depth() / kGroup, depth() * Vectors(p) * kLanes,
                     tile, next);
  }

 private:
  static constexpr int64_t kRun = 16;

  // `count` numbers to one lane of as many rows of a panel.
  ECORNN_INLINE static void PackRun(const S* from, int64_t count, int64_t width,
                                    P* to) {
    for (int64_t j = 0; j < count; ++j) {
      Narrow(Widen(from[j]), to + j / kGroup * width * kGroup + j % kGroup);
    }
  }

  int64_t Width() const { return CeilDiv<int64_t>(units_, kLanes) * kLanes; }
  P* Gate(int g, int64_t p) const {
    constexpr int kLast = Cell::kPhases - 1;
    const int q = g < Cell::kFirstGate[kLast] ? 0 : kLast;
    return packed_ +
           depth() * (Width() * Cell::kFirstGate[q] +
                      p * kPanelWidth * Cell::kGateCount[q] +
                      (g - Cell::kFirstGate[q]) * Vectors(p) * kLanes);
  }

  const S* kernel_;
  const int64_t units_;
  const bool is_large_;
  P* packed_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_WEIGHTS_H_
