// The backward pass of one block: its rows and units back through the sequence.
//
//   for each step, from the last
//     for each phase of the cell               LSTM: one
//       wait until the rows' blocks have published their gates' gradients
//       for each tile of units and rows        product with the transposed
//                                              weights: the state's gradient;
//                                              then the cell's derivative
//       publish the gates' gradients, then store them
//
// The gradient of a row's state is the product, plus what is kept of it: the
// direct part, which no product carries. A masked step moves the product there;
// so a step that none of the rows takes needs nothing at all.
#ifndef TF_ECORNN_CUDA_BACKWARD_H_
#define TF_ECORNN_CUDA_BACKWARD_H_

#include "block.h"
#include "span.h"

namespace ecornn {
namespace cuda {

// One unit of one row at one step, as a cell sees it.
template <class S>
struct BackwardElement {
  using C = ComputeType<S>;

  int64_t at;  // row * T + time
  int64_t unit;
  int64_t units;
  C saved[4];      // the gates
  C previous;      // c, or a GRU's h, that entered the step
  C candidate;     // a GRU's
  C grad_h;        // of the state that left; in the second phase, of r * h
  C grad[4];       // of the gates' pre-activations, on the input side
  C published[4];  // the same on the recurrent side
  C direct;        // of the state that entered, but for the product
};

template <class CellType, class TileType>
class BackwardPass {
 public:
  using Cell = CellType;
  using Tile = TileType;
  using S = typename Tile::S;
  using C = typename Tile::C;
  using Args = BackwardArgs<S>;
  static constexpr int kGates = Cell::kGates;
  static constexpr int kBiasSums = kGates + (Cell::kSplitCandidate ? 1 : 0);
  // Of each unit of each row: the direct part, the gradient of outputs that
  // repeat an earlier one, the sums of the biases' gradients, the cell's own.
  static constexpr int kStateDirect = 0;
  static constexpr int kStatePending = 1;
  static constexpr int kStateBias = 2;
  static constexpr int kFirstCellState = kStateBias + kBiasSums;
  static constexpr int kStates = kFirstCellState + Cell::kStates;

  ECORNN_DEVICE BackwardPass(const Args& args, const Plan& plan,
                             unsigned char* scratch)
      : args_(args),
        s_(args.sequence),
        block_(plan, scratch, args.sequence),
        cell_(args),
        row_tiles_(plan.row_tiles),
        persistent_(plan.persistent),
        row_bias_(reinterpret_cast<C*>(scratch + plan.row_bias)) {}

  ECORNN_DEVICE void Run(const Span& span) {
    if (s_.steps > 0 && (span.first < span.last || span.ends)) {
      block_.TakeWeights();
    }
    int parity = span.parity;
    if (span.starts) {
      ForEachTile([&](int slice, int row_tile) { Start(slice, row_tile); });
    }
    // Whether a later step has published; known to a launch of one step, too.
    bool published = !span.starts;
    for (int64_t i = span.first; i < span.last; ++i) {
      const int64_t step = s_.steps - 1 - i;
      const int64_t t = s_.reverse ? i : step;
      const bool any = block_.MarkRows(args_.mask, args_.reset, t);
      if (persistent_ && !any) {
        ForEachTile(
            [&](int slice, int row_tile) { Skip(slice, row_tile, step, t); });
        continue;
      }
      if (span.Covers(0)) RunPhase<0>(step, t, parity, published);
      if constexpr (Cell::kPhases == 2) {
        if (span.Covers(1)) RunPhase<1>(step, t, parity, true);
      }
      parity ^= 1;
      published = true;
    }
    if (span.ends) End(parity, published && s_.steps > 0);
  }

 private:
  template <class Use>
  ECORNN_DEVICE void ForEachTile(const Use& use) {
    for (int slice = 0; slice < block_.slices(); ++slice) {
      for (int row_tile = 0; row_tile < row_tiles_; ++row_tile) {
        use(slice, row_tile);
      }
    }
  }

  // Where this thread's element of a tile lies; false outside of the arrays.
  ECORNN_DEVICE bool Locate(int slice, int row_tile, int64_t* unit,
                            int64_t* row) const {
    *unit = block_.Unit(slice);
    *row = block_.BatchRow(block_.SliceRow(row_tile));
    return *unit < s_.units && *row < s_.batch;
  }

  ECORNN_DEVICE bool wants_bias() const {
    return args_.grad_bias != nullptr || args_.grad_recurrent_bias != nullptr;
  }

  ECORNN_DEVICE Pointer<C> States(int slice, int row_tile) const {
    return block_.States(slice, row_tile, kStates);
  }

  ECORNN_DEVICE void Start(int slice, int row_tile) {
    int64_t unit, row;
    if (!Locate(slice, row_tile, &unit, &row)) return;
    const Pointer<C> states = States(slice, row_tile);
    const int64_t count = s_.batch * s_.units;
    const int64_t i = row * s_.units + unit;
    states[kStateDirect * kTileSums] =
        Widen(Global(args_.grad_final_h, count)[i]);
    // The last output is the last step's, a repetition, or zero.
    C pending = C(0);
    if (s_.steps > 0) {
      const int64_t last = s_.reverse ? 0 : s_.steps - 1;
      const bool zero =
          s_.zero_output_for_mask && args_.mask != nullptr &&
          !Global(args_.mask, s_.batch * s_.steps)[row * s_.steps + last];
      if (!zero) pending = Widen(Global(args_.grad_last_output, count)[i]);
    }
    states[kStatePending * kTileSums] = pending;
    for (int g = 0; g < kBiasSums; ++g) {
      states[(kStateBias + g) * kTileSums] = C(0);
    }
    cell_.Start(args_, i, states + kFirstCellState * kTileSums);
  }

  ECORNN_DEVICE auto Operand(int parity, int gate) const {
    return block_.Exchange(parity, gate, kGates);
  }

  // The second phase multiplies what the first one has just published.
  template <int kPhase>
  ECORNN_DEVICE static constexpr int ReadParity(int parity) {
    return kPhase == 1 ? parity ^ 1 : parity;
  }

  template <int kPhase>
  ECORNN_DEVICE void RunPhase(int64_t step, int64_t t, int parity,
                              bool published) {
    ForEachTile([&](int slice, int row_tile) {
      BackwardElement<S> e;
      int64_t row;
      const bool inside = Locate(slice, row_tile, &e.unit, &row);
      e.at = row * s_.steps + t;
      e.units = s_.units;
      const unsigned char mark = block_.Mark(block_.SliceRow(row_tile));
      const bool valid = inside && (mark & kRowValid) != 0;
      // Under way while the block waits and multiplies.
      C grad_output = C(0);
      if (valid) cell_.template Load<kPhase>(args_, &e);
      if (inside && kPhase == 0) {
        grad_output = LoadGradOutput(row, step, e.unit);
      }
      if (slice + row_tile > 0) {
        BlockBarrier(SyncPoint::kPartsRead);
      } else if (published) {
        block_.Wait();
      }
      C product = C(0);
      if (published) {
        product = Multiply<kPhase>(slice, row_tile, ReadParity<kPhase>(parity),
                                   inside, row, e.unit);
      }
      if (kPhase == 0) {
        FinishState(slice, row_tile, parity, inside, mark, product, grad_output,
                    &e);
      } else {
        FinishInner(slice, row_tile, parity, inside, mark, product, &e);
      }
      // The others wait for what has been published, for nothing else.
      if (block_.IsLastTile(slice, row_tile)) block_.Arrive();
      if (valid) {
        Store<kPhase>(States(slice, row_tile), e);
      } else if (inside && kPhase == 0) {
        ClearGradients(e.at, e.unit);
      }
    });
  }

  ECORNN_DEVICE C LoadGradOutput(int64_t row, int64_t step,
                                 int64_t unit) const {
    if (args_.grad_outputs == nullptr) return C(0);
    return Widen(
        Global(args_.grad_outputs,
               s_.batch * s_.steps *
                   s_.units)[(row * s_.steps + step) * s_.units + unit]);
  }

  // This thread's sum over the phase's gates.
  template <int kPhase>
  ECORNN_DEVICE C Multiply(int slice, int row_tile, int parity, bool inside,
                           int64_t row, int64_t unit) {
    constexpr int kFirst = Cell::kFirstGate[kPhase];
    constexpr int kCount = Cell::kGateCount[kPhase];
    typename Tile::Sums sums[kGates];
    ECORNN_UNROLL for (int i = 0; i < kCount; ++i) sums[kFirst + i].Clear();
    MultiplyByGate<kFirst, kFirst + kCount>(
        slice, row_tile, parity, block_.UsedRows(row_tile, false), sums);
    if (args_.recurrent_dropout == nullptr) {
      ECORNN_UNROLL for (int i = 1; i < kCount; ++i) {
        sums[kFirst].Add(sums[kFirst + i]);
      }
      block_.template StoreParts<kFirst, 1>(sums);
      BlockBarrier(SyncPoint::kPartsReady);
      return block_.AddParts(kFirst);
    }
    // Each gate's part times the mask that its operand carried.
    block_.template StoreParts<kFirst, kCount>(sums);
    BlockBarrier(SyncPoint::kPartsReady);
    C sum = C(0);
    ECORNN_UNROLL for (int i = 0; i < kCount; ++i) {
      const int g = kFirst + i;
      const C part = block_.AddParts(g);
      if (inside) {
        const C keep =
            Widen(Global(args_.recurrent_dropout,
                         s_.batch * kGates *
                             s_.units)[(row * kGates + g) * s_.units + unit]);
        sum = Fma(part, keep, sum);
      }
    }
    return sum;
  }
  template <int kGate, int kEnd>
  ECORNN_DEVICE void MultiplyByGate(int slice, int row_tile, int parity,
                                    unsigned used, typename Tile::Sums* sums) {
    if constexpr (kGate < kEnd) {
      block_.template Multiply<kGate, 1>(slice, row_tile,
                                         Operand(parity, kGate), used, sums);
      MultiplyByGate<kGate + 1, kEnd>(slice, row_tile, parity, used, sums);
    }
  }

  // The first phase: from the gradient of the state that left the step.
  ECORNN_DEVICE void FinishState(int slice, int row_tile, int parity,
                                 bool inside, unsigned char mark, C product,
                                 C grad_output, BackwardElement<S>* e) {
    const Pointer<C> states = States(slice, row_tile);
    const Pointer<C> cell_states = states + kFirstCellState * kTileSums;
    const bool valid = inside && (mark & kRowValid) != 0;
    const bool restart = (mark & kRowRestart) != 0;
    if (valid) {
      e->grad_h = product + states[kStateDirect * kTileSums];
      e->grad_h += states[kStatePending * kTileSums];
      e->grad_h += grad_output;
      states[kStatePending * kTileSums] = C(0);
      cell_.template Finish<0>(e, cell_states);
      states[kStateDirect * kTileSums] = e->direct;
    } else if (inside) {
      // The state's gradient passes by; that of a repeated output waits for the
      // step that put it out.
      states[kStateDirect * kTileSums] =
          product + states[kStateDirect * kTileSums];
      KeepPending(states, grad_output);
    }
    if (inside && restart) DropState(states, cell_states);
    // What the second phase takes up is of this very step: a restart leaves it.
    constexpr int kEarlierGates = Cell::kGateCount[0];
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      if (!Cell::Publishes(0, g)) continue;
      const bool earlier = g < kEarlierGates;
      block_.Publish(Operand(parity ^ 1, g), slice, row_tile,
                     valid && !(restart && earlier) ? e->published[g] : C(0));
    }
  }

  // The second phase: from the gradient of r * h, h with its dropout.
  ECORNN_DEVICE void FinishInner(int slice, int row_tile, int parity,
                                 bool inside, unsigned char mark, C product,
                                 BackwardElement<S>* e) {
    const Pointer<C> states = States(slice, row_tile);
    const bool valid = inside && (mark & kRowValid) != 0;
    const bool restart = (mark & kRowRestart) != 0;
    if (valid) {
      e->grad_h = product;
      e->direct = C(0);
      cell_.template Finish<1>(e, states + kFirstCellState * kTileSums);
      states[kStateDirect * kTileSums] =
          states[kStateDirect * kTileSums] + e->direct;
      if (restart) states[kStateDirect * kTileSums] = C(0);
    }
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      if (!Cell::Publishes(1, g)) continue;
      block_.Publish(Operand(parity ^ 1, g), slice, row_tile,
                     valid && !restart ? e->published[g] : C(0));
    }
  }

  // The phase's gradients to memory and to the sums of the biases.
  template <int kPhase>
  ECORNN_DEVICE void Store(Pointer<C> states,
                           const BackwardElement<S>& e) const {
    const int64_t count = s_.batch * s_.steps * s_.units;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      if (!Cell::Publishes(kPhase, g)) continue;
      Global(args_.grad_gates,
             count * kGates)[(e.at * kGates + g) * s_.units + e.unit] =
          Narrow<S>(e.grad[g]);
      states[(kStateBias + g) * kTileSums] += e.grad[g];
    }
    if constexpr (Cell::kSplitCandidate) {
      const C recurrent = e.published[kGates - 1];
      Global(args_.grad_candidate, count)[e.at * s_.units + e.unit] =
          Narrow<S>(recurrent);
      states[(kStateBias + kGates) * kTileSums] += recurrent;
    }
  }

  // The state was set to zero before this step: nothing reaches further back.
  ECORNN_DEVICE void DropState(Pointer<C> states,
                               Pointer<C> cell_states) const {
    states[kStateDirect * kTileSums] = C(0);
    cell_.Restart(cell_states);
  }

  ECORNN_DEVICE void KeepPending(Pointer<C> states, C grad_output) const {
    if (s_.zero_output_for_mask) return;
    states[kStatePending * kTileSums] += grad_output;
  }

  // A step that no row of the slice takes.
  ECORNN_DEVICE void Skip(int slice, int row_tile, int64_t step, int64_t t) {
    int64_t unit, row;
    if (!Locate(slice, row_tile, &unit, &row)) return;
    KeepPending(States(slice, row_tile), LoadGradOutput(row, step, unit));
    ClearGradients(row * s_.steps + t, unit);
  }

  ECORNN_DEVICE void ClearGradients(int64_t at, int64_t unit) const {
    const int64_t count = s_.batch * s_.steps * s_.units;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      Global(args_.grad_gates,
             count * kGates)[(at * kGates + g) * s_.units + unit] =
          Narrow<S>(C(0));
    }
    if constexpr (Cell::kSplitCandidate) {
      Global(args_.grad_candidate, count)[at * s_.units + unit] =
          Narrow<S>(C(0));
    }
  }

  // Gradients of the initial states, and each row's sums of the biases'.
  ECORNN_DEVICE void End(int parity, bool published) {
    if (published) block_.Wait();
    ForEachTile([&](int slice, int row_tile) {
      int64_t unit, row;
      const bool inside = Locate(slice, row_tile, &unit, &row);
      if (slice + row_tile > 0) BlockBarrier(SyncPoint::kPartsRead);
      C product = C(0);
      if (published) {
        product = Multiply<0>(slice, row_tile, parity, inside, row, unit);
      }
      if (!inside) return;
      const Pointer<C> states = States(slice, row_tile);
      const int64_t i = row * s_.units + unit;
      Global(args_.grad_initial_h, s_.batch * s_.units)[i] =
          Narrow<S>(C(product + states[kStateDirect * kTileSums]));
      cell_.End(args_, i, states + kFirstCellState * kTileSums);
      if (!wants_bias()) return;
      ECORNN_UNROLL for (int g = 0; g < kBiasSums; ++g) {
        Global(row_bias_,
               s_.batch * kBiasSums *
                   s_.units)[(row * kBiasSums + g) * s_.units + unit] =
            states[(kStateBias + g) * kTileSums];
      }
    });
  }

  const Args& args_;
  const Sequence& s_;
  Block<Tile, kGates> block_;
  Cell cell_;
  const int row_tiles_;
  const bool persistent_;
  C* const row_bias_;  // (B, sums, U)
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_BACKWARD_H_
