// The forward pass of one block: its rows and units through the sequence.
//
//   for each step
//     for each phase of the cell               LSTM: one
//       wait until the rows' blocks have published its operand
//       for each tile of units and rows        product, then the cell
//       publish the next operand, then store what else comes of the step
//
// A launch takes a span of this: all of it, or, where the blocks cannot all run
// at once, one phase of one step.
#ifndef TF_ECORNN_CUDA_FORWARD_H_
#define TF_ECORNN_CUDA_FORWARD_H_

#include "block.h"
#include "span.h"

namespace ecornn {
namespace cuda {

// One unit of one row at one step, as a cell sees it.
template <class S>
struct ForwardElement {
  using C = ComputeType<S>;

  int64_t at;  // row * T + time
  int64_t unit;
  int64_t units;
  int64_t dropout;  // where the row's recurrent dropout begins, (G, U)
  C side[4];        // of each gate: the input's part and the bias
  C sum[4];         // of each gate: the recurrent product
  C h;              // the state that enters, and then that which leaves
  C inner;          // what the second phase multiplies

  // For the backward pass:
  C saved[4];    // the gates
  C previous_h;  // the states that entered
  C previous_c;
  C candidate;
};

template <class CellType, class TileType>
class ForwardPass {
 public:
  using Cell = CellType;
  using Tile = TileType;
  using S = typename Tile::S;
  using C = typename Tile::C;
  using Args = ForwardArgs<S>;
  static constexpr int kGates = Cell::kGates;
  // Of each unit of each row: h, the output that masked steps repeat, and the
  // cell's own.
  static constexpr int kStates = 2 + Cell::kStates;
  static constexpr int kStateH = 0;
  static constexpr int kStateOutput = 1;
  static constexpr int kFirstCellState = 2;

  ECORNN_DEVICE ForwardPass(const Args& args, const Plan& plan,
                            unsigned char* scratch)
      : args_(args),
        s_(args.sequence),
        block_(plan, scratch, args.sequence),
        cell_(args),
        row_tiles_(plan.row_tiles),
        persistent_(plan.persistent),
        operands_(args.recurrent_dropout == nullptr ? 1 : Cell::kGateCount[0]) {
  }

  ECORNN_DEVICE void Run(const Span& span) {
    if (span.first < span.last) block_.TakeWeights();
    int parity = span.parity;
    if (span.starts) {
      ForEachTile([&](int slice, int row_tile) { Start(slice, row_tile); });
      block_.Arrive();
    }
    for (int64_t step = span.first; step < span.last; ++step) {
      const int64_t t = s_.reverse ? s_.steps - 1 - step : step;
      const bool any = block_.MarkRows(args_.mask, args_.reset, t);
      if (persistent_ && !any) {
        // All blocks of these rows agree: nothing to exchange.
        ForEachTile(
            [&](int slice, int row_tile) { Skip(slice, row_tile, step, t); });
        continue;
      }
      if (span.Covers(0)) RunPhase<0>(step, t, parity);
      if constexpr (Cell::kPhases == 2) {
        if (span.Covers(1)) RunPhase<1>(step, t, parity);
      }
      parity ^= 1;
    }
    if (span.ends) {
      ForEachTile([&](int slice, int row_tile) { End(slice, row_tile); });
    }
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

  ECORNN_DEVICE Pointer<C> States(int slice, int row_tile) const {
    return block_.States(slice, row_tile, kStates);
  }

  ECORNN_DEVICE void Start(int slice, int row_tile) {
    const Pointer<C> states = States(slice, row_tile);
    int64_t unit, row;
    const bool inside = Locate(slice, row_tile, &unit, &row);
    C h = C(0);
    if (inside) {
      const int64_t i = row * s_.units + unit;
      h = Widen(Global(args_.initial_h, s_.batch * s_.units)[i]);
      states[kStateH * kTileSums] = h;
      states[kStateOutput * kTileSums] = C(0);
      cell_.Start(args_, i, states + kFirstCellState * kTileSums);
    }
    PublishState(0, slice, row_tile, inside, unit, row, h);
  }

  // The state as the operand, or the operands, of the next step's product.
  ECORNN_DEVICE void PublishState(int parity, int slice, int row_tile,
                                  bool inside, int64_t unit, int64_t row,
                                  C h) const {
    if (operands_ == 1) {
      block_.Publish(Operand(parity, 0), slice, row_tile, h);
      return;
    }
    const int64_t dropout = row * kGates * s_.units;
    for (int g = 0; g < operands_; ++g) {
      const C keep =
          inside ? Widen(Dropout()[dropout + g * s_.units + unit]) : C(0);
      block_.Publish(Operand(parity, g), slice, row_tile, h * keep);
    }
  }

  ECORNN_DEVICE auto Operand(int parity, int operand) const {
    return block_.Exchange(parity, operand, operands_);
  }
  ECORNN_DEVICE Pointer<const S> Dropout() const {
    return Global(args_.recurrent_dropout, s_.batch * kGates * s_.units);
  }

  template <int kPhase>
  ECORNN_DEVICE void RunPhase(int64_t step, int64_t t, int parity) {
    constexpr int kFirst = Cell::kFirstGate[kPhase];
    constexpr int kCount = Cell::kGateCount[kPhase];
    ForEachTile([&](int slice, int row_tile) {
      ForwardElement<S> e;
      int64_t row;
      const bool inside = Locate(slice, row_tile, &e.unit, &row);
      e.at = row * s_.steps + t;
      e.units = s_.units;
      e.dropout = row * kGates * s_.units;
      const unsigned char mark = block_.Mark(block_.SliceRow(row_tile));
      const bool valid = inside && (mark & kRowValid) != 0;
      // Under way while the block waits and multiplies.
      if (valid) LoadSides<kPhase>(&e);
      if (slice + row_tile == 0) {
        block_.Wait();
      } else {
        BlockBarrier(SyncPoint::kPartsRead);
      }
      typename Tile::Sums sums[kGates];
      Multiply<kPhase>(slice, row_tile, parity, sums);
      block_.template StoreParts<kFirst, kCount>(sums);
      BlockBarrier(SyncPoint::kPartsReady);
      ECORNN_UNROLL for (int g = kFirst; g < kFirst + kCount; ++g) {
        e.sum[g] = block_.AddParts(g);
      }
      const C output =
          Finish<kPhase>(slice, row_tile, parity, inside, mark, row, &e);
      // The others wait for what has been published, for nothing else.
      if (block_.IsLastTile(slice, row_tile)) block_.Arrive();
      if (inside) Store<kPhase>(valid, row, step, e, output);
    });
  }

  template <int kPhase>
  ECORNN_DEVICE void LoadSides(ForwardElement<S>* e) const {
    constexpr int kFirst = Cell::kFirstGate[kPhase];
    constexpr int kCount = Cell::kGateCount[kPhase];
    const int64_t width = kGates * s_.units;
    const auto inputs = Global(args_.gates_x, s_.batch * s_.steps * width);
    ECORNN_UNROLL for (int g = kFirst; g < kFirst + kCount; ++g) {
      const int64_t column = g * s_.units + e->unit;
      C side = Widen(inputs[e->at * width + column]);
      if (args_.bias != nullptr) {
        side += Widen(Global(args_.bias, width)[column]);
      }
      e->side[g] = side;
    }
  }

  template <int kPhase>
  ECORNN_DEVICE void Multiply(int slice, int row_tile, int parity,
                              typename Tile::Sums* sums) {
    constexpr int kFirst = Cell::kFirstGate[kPhase];
    constexpr int kCount = Cell::kGateCount[kPhase];
    ECORNN_UNROLL for (int i = 0; i < kCount; ++i) sums[kFirst + i].Clear();
    if constexpr (kPhase == 1) {
      block_.template Multiply<kFirst, kCount>(
          slice, row_tile, block_.InnerExchange(),
          block_.UsedRows(row_tile, false), sums);
    } else {
      const unsigned used = block_.UsedRows(row_tile, true);
      if (operands_ == 1) {
        block_.template Multiply<kFirst, kCount>(
            slice, row_tile, Operand(parity, 0), used, sums);
      } else {
        MultiplyByGate<0, kCount>(slice, row_tile, parity, used, sums);
      }
    }
  }
  // Recurrent dropout: every gate has an operand of its own.
  template <int kGate, int kCount>
  ECORNN_DEVICE void MultiplyByGate(int slice, int row_tile, int parity,
                                    unsigned used, typename Tile::Sums* sums) {
    if constexpr (kGate < kCount) {
      block_.template Multiply<kGate, 1>(slice, row_tile,
                                         Operand(parity, kGate), used, sums);
      MultiplyByGate<kGate + 1, kCount>(slice, row_tile, parity, used, sums);
    }
  }

  // Takes the element through the phase and publishes what comes of it. Returns
  // the step's output.
  template <int kPhase>
  ECORNN_DEVICE C Finish(int slice, int row_tile, int parity, bool inside,
                         unsigned char mark, int64_t row,
                         ForwardElement<S>* e) {
    constexpr bool kLast = kPhase == Cell::kPhases - 1;
    const Pointer<C> states = States(slice, row_tile);
    const bool valid = (mark & kRowValid) != 0;
    C output = C(0);
    e->inner = C(0);
    e->h = C(0);
    if (inside) {
      const Pointer<C> cell_states = states + kFirstCellState * kTileSums;
      if (kPhase == 0 && (mark & kRowRestart) != 0) {
        states[kStateH * kTileSums] = C(0);
        cell_.Restart(cell_states);
      }
      e->h = states[kStateH * kTileSums];
      if (valid) cell_.template Finish<kPhase>(args_, e, cell_states);
      if (kLast) {
        states[kStateH * kTileSums] = e->h;
        output = Output(states, valid, e->h);
      }
    }
    if (kLast) {
      PublishState(parity ^ 1, slice, row_tile, inside, e->unit, row, e->h);
    } else {
      block_.Publish(block_.InnerExchange(), slice, row_tile, e->inner);
    }
    return output;
  }

  // The step's output: the state, or what a masked step puts out.
  ECORNN_DEVICE C Output(Pointer<C> states, bool valid, C h) const {
    C output = h;
    if (!valid) {
      output =
          s_.zero_output_for_mask ? C(0) : C(states[kStateOutput * kTileSums]);
    }
    states[kStateOutput * kTileSums] = output;
    return output;
  }

  template <int kPhase>
  ECORNN_DEVICE void Store(bool valid, int64_t row, int64_t step,
                           const ForwardElement<S>& e, C output) const {
    if (kPhase == Cell::kPhases - 1) PutOut(row, step, e.unit, output);
    if (args_.gates == nullptr) return;
    if (valid) {
      cell_.template Save<kPhase>(args_, e);
    } else if (kPhase == 0) {
      ClearSaved(e.at, e.unit);
    }
  }

  ECORNN_DEVICE void PutOut(int64_t row, int64_t step, int64_t unit,
                            C output) const {
    if (args_.outputs == nullptr) return;
    Global(args_.outputs,
           s_.batch * s_.steps *
               s_.units)[(row * s_.steps + step) * s_.units + unit] =
        Narrow<S>(output);
  }

  // A step that no row of the slice takes.
  ECORNN_DEVICE void Skip(int slice, int row_tile, int64_t step, int64_t t) {
    int64_t unit, row;
    if (!Locate(slice, row_tile, &unit, &row)) return;
    PutOut(row, step, unit, Output(States(slice, row_tile), false, C(0)));
    if (args_.gates != nullptr) ClearSaved(row * s_.steps + t, unit);
  }

  ECORNN_DEVICE void ClearSaved(int64_t at, int64_t unit) const {
    const int64_t count = s_.batch * s_.steps * s_.units;
    const int64_t i = at * s_.units + unit;
    ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
      Global(args_.gates, count * kGates)[(at * kGates + g) * s_.units + unit] =
          Narrow<S>(C(0));
    }
    Global(args_.previous_h, count)[i] = Narrow<S>(C(0));
    if (Cell::kHasCellState) Global(args_.previous_c, count)[i] = C(0);
    if (Cell::kSavesCandidate) {
      Global(args_.candidate, count)[i] = Narrow<S>(C(0));
    }
  }

  ECORNN_DEVICE void End(int slice, int row_tile) {
    int64_t unit, row;
    if (!Locate(slice, row_tile, &unit, &row)) return;
    const Pointer<C> states = States(slice, row_tile);
    const int64_t count = s_.batch * s_.units;
    const int64_t i = row * s_.units + unit;
    Global(args_.final_h, count)[i] = Narrow<S>(C(states[kStateH * kTileSums]));
    Global(args_.last_output, count)[i] =
        Narrow<S>(C(states[kStateOutput * kTileSums]));
    cell_.End(args_, i, states + kFirstCellState * kTileSums);
  }

  const Args& args_;
  const Sequence& s_;
  Block<Tile, kGates> block_;
  Cell cell_;
  const int row_tiles_;
  const bool persistent_;
  const int operands_;
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_FORWARD_H_
