// A block of threads at work on its slice of units and rows: the recurrent
// product of a step, and the exchange of the state with the blocks of the same
// rows.
//
// The product's depth is split over the warps, chunk by chunk; their partial
// sums meet in shared memory and are added in the warps' order, one sum by each
// thread. So the order of additions depends on the number of units alone.
#ifndef TF_ECORNN_CUDA_BLOCK_H_
#define TF_ECORNN_CUDA_BLOCK_H_

#include "plan.h"
#include "tile.h"

namespace ecornn {
namespace cuda {

// What a row does at a step, as bits of a mark.
inline constexpr unsigned char kRowValid = 1;    // takes the step
inline constexpr unsigned char kRowRestart = 2;  // from a state of zero

template <class TileType, int kGates>
class Block {
 public:
  using Tile = TileType;
  using S = typename Tile::S;
  using C = typename Tile::C;
  using Operand = typename Tile::Operand;
  using Sums = typename Tile::Sums;

  ECORNN_DEVICE Block(const Plan& plan, unsigned char* scratch,
                      const Sequence& sequence)
      : plan_(plan),
        scratch_(scratch),
        sequence_(sequence),
        row_slice_(BlockIndex() / plan.unit_blocks),
        first_slice_(static_cast<int>(BlockIndex() % plan.unit_blocks) *
                     plan.group) {}

  // Brings the weights to where the steps read them, which they do after some
  // exchange, or not at all: its barriers are enough.
  ECORNN_DEVICE void TakeWeights() {
    const Pointer<const Operand> all = GlobalWeights();
    ECORNN_UNROLL for (int j = 0; j < Tile::kKept; ++j) {
      const int chunk = Warp() + j * Tile::kProductWarps;
      if (chunk >= plan_.chunks) continue;
      ECORNN_UNROLL for (int g = 0; g < kGates; ++g) {
        kept_[j * kGates + g].Load(
            all +
            (int64_t{first_slice_} * plan_.chunks + chunk) * kChunkWeights +
            g * kGateWeights);
      }
    }
    if (!plan_.persistent) return;
    const int64_t first =
        (int64_t{first_slice_} * plan_.chunks + kept_chunks()) * kChunkWeights;
    const int64_t count =
        shared_chunks() * kChunkWeights + Tile::kWeightPadding;
    const Pointer<Operand> shared = SharedWeights();
    constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Operand));
    for (int64_t i = ThreadIndex() * kWidth; i < count;
         i += kBlockThreads * kWidth) {
      StoreVector<Operand>(shared + i, LoadVector<Operand>(all + first + i));
    }
  }

  // --- The block's units and rows -----------------------------------------

  // Unit slices of this block; the last one may have fewer than the others.
  ECORNN_DEVICE int slices() const {
    const int rest = plan_.unit_slices - first_slice_;
    return rest < plan_.group ? rest : plan_.group;
  }
  ECORNN_DEVICE bool IsLastTile(int slice, int row_tile) const {
    return slice == slices() - 1 && row_tile == plan_.row_tiles - 1;
  }
  // The unit and the row of this thread in a tile.
  ECORNN_DEVICE int64_t Unit(int slice) const {
    return int64_t{first_slice_ + slice} * Tile::kUnits +
           ThreadIndex() % Tile::kUnits;
  }
  ECORNN_DEVICE int SliceRow(int row_tile) const {
    return row_tile * Tile::kRows + ThreadIndex() / Tile::kUnits;
  }
  ECORNN_DEVICE int64_t BatchRow(int slice_row) const {
    return row_slice_ * rows() + slice_row;
  }
  ECORNN_DEVICE int rows() const { return plan_.row_tiles * Tile::kRows; }

  // A number of this thread's unit and row that lives through the sequence.
  ECORNN_DEVICE Pointer<C> States(int slice, int row_tile, int count) const {
    const int64_t per_block =
        int64_t{plan_.group} * plan_.row_tiles * count * kTileSums;
    const int64_t at =
        (int64_t{slice} * plan_.row_tiles + row_tile) * count * kTileSums +
        ThreadIndex();
    if (plan_.persistent) {
      return Shared<C>(plan_.shared_states, per_block) + at;
    }
    return Global(ScratchAt<C>(plan_.states), plan_.blocks * per_block) +
           BlockIndex() * per_block + at;
  }

  // --- Marks --------------------------------------------------------------

  // Notes what every row of the slice does at step t, from arrays (B, T) that
  // may be null, and tells whether any does something.
  ECORNN_DEVICE bool MarkRows(const bool* mask, const bool* reset, int64_t t) {
    if (mask == nullptr && reset == nullptr) return true;
    const int64_t count = sequence_.batch * sequence_.steps;
    const Pointer<unsigned char> marks = Marks();
    bool any = false;
    for (int row = ThreadIndex(); row < rows(); row += kBlockThreads) {
      const int64_t b = BatchRow(row);
      unsigned char mark = 0;
      if (b < sequence_.batch) {
        const int64_t at = b * sequence_.steps + t;
        if (mask == nullptr || Global(mask, count)[at]) mark |= kRowValid;
        if (reset != nullptr && Global(reset, count)[at]) mark |= kRowRestart;
      }
      marks[row] = mark;
      any |= mark != 0;
    }
    marked_ = true;
    return BlockAny(any, SyncPoint::kRowsMarked);
  }
  ECORNN_DEVICE unsigned char Mark(int slice_row) const {
    if (marked_) return Marks()[slice_row];
    return BatchRow(slice_row) < sequence_.batch ? kRowValid : 0;
  }

  // --- The product --------------------------------------------------------

  // Adds to the sums of gates [kFirst, kFirst + kCount) the products of their
  // weights with one operand (chunks, rows, 16); see UsedRows().
  template <int kFirst, int kCount>
  ECORNN_DEVICE void Multiply(int slice, int row_tile,
                              Pointer<const Operand> operand,
                              unsigned used_rows, Sums* sums) {
    const Pointer<Operand> stage = Stage();
    constexpr int kStep = Tile::kProductWarps;
    const int count = Multiplies() && Warp() < plan_.chunks
                          ? (plan_.chunks - Warp() + kStep - 1) / kStep
                          : 0;
    ECORNN_NO_UNROLL for (int base = 0; base < count; base += Tile::kAhead) {
      Vector16 ahead[Tile::kAhead * kLaneVectors];
      ECORNN_UNROLL for (int j = 0; j < Tile::kAhead; ++j) {
        if (base + j >= count) continue;
        Fetch(operand, Warp() + (base + j) * kStep, row_tile, used_rows,
              ahead + j * kLaneVectors);
      }
      ECORNN_UNROLL for (int j = 0; j < Tile::kAhead; ++j) {
        if (base + j >= count) continue;
        PutOnStage(stage, ahead + j * kLaneVectors);
        WarpBarrier(SyncPoint::kStaged);
        typename Tile::Rows rows;
        rows.Load(stage);
        MultiplyChunk<kFirst, kCount>(slice, base, j, rows, sums);
        WarpBarrier(SyncPoint::kStageRead);
      }
    }
  }

  // Which of the rows that this lane fetches have an operand other than zero.
  // With `restarting`, rows that restart have none.
  ECORNN_DEVICE unsigned UsedRows(int row_tile, bool restarting) const {
    unsigned used = 0;
    ECORNN_UNROLL for (int i = 0; i < kLaneVectors; ++i) {
      const int row = row_tile * Tile::kRows + LaneVector(i) / kRowVectors;
      bool use = BatchRow(row) < sequence_.batch;
      if (use && restarting && marked_) {
        use = (Marks()[row] & kRowRestart) == 0;
      }
      used |= static_cast<unsigned>(use) << i;
    }
    return used;
  }

  // Hands this warp's sums to the threads that they belong to.
  template <int kFirst, int kCount>
  ECORNN_DEVICE void StoreParts(const Sums* sums) const {
    if (!Multiplies()) return;
    ECORNN_UNROLL for (int g = kFirst; g < kFirst + kCount; ++g) {
      sums[g].Store(Parts() + (Warp() * kGates + g) * kPartElements);
    }
  }
  // This thread's sum.
  ECORNN_DEVICE C AddParts(int gate) const {
    constexpr int kMost = Tile::kProductWarps;
    const int warps = plan_.chunks < kMost ? plan_.chunks : kMost;
    const int part = ThreadIndex() / Tile::kUnits * Tile::kPartStride +
                     ThreadIndex() % Tile::kUnits;
    C sum = C(0);
    ECORNN_UNROLL for (int w = 0; w < kMost; ++w) {
      if (w >= warps) continue;
      sum += Parts()[(w * kGates + gate) * kPartElements + part];
    }
    return sum;
  }

  // --- The exchange -------------------------------------------------------

  // An operand of the rows' next product: (chunks, rows, 16).
  ECORNN_DEVICE Pointer<Operand> Exchange(int parity, int operand,
                                          int operands) const {
    const int64_t index =
        (parity * plan_.row_slices + row_slice_) * operands + operand;
    return Global(ScratchAt<Operand>(plan_.exchange),
                  2 * plan_.row_slices * operands * operand_elements()) +
           index * operand_elements();
  }
  ECORNN_DEVICE Pointer<Operand> InnerExchange() const {
    return Global(ScratchAt<Operand>(plan_.inner_exchange),
                  plan_.row_slices * operand_elements()) +
           row_slice_ * operand_elements();
  }
  // Puts this thread's unit of a row there.
  ECORNN_DEVICE void Publish(Pointer<Operand> operand, int slice, int row_tile,
                             C value) const {
    const int64_t unit = Unit(slice);
    operand[(unit / kChunkDepth * rows() + SliceRow(row_tile)) * kChunkDepth +
            unit % kChunkDepth] = Tile::ToOperand(value);
  }

  // Says that the block has published, and waits for all that did so.
  ECORNN_DEVICE void Arrive() {
    BlockBarrier(SyncPoint::kPublished);
    ++arrivals_;
    if (!plan_.persistent || ThreadIndex() != 0) return;
    DeviceFence(SyncPoint::kPublishFence);
    AddToCounter(Counter(), 1);
  }
  ECORNN_DEVICE void Wait() const {
    if (!plan_.persistent) return;
    if (ThreadIndex() == 0) {
      const unsigned target = arrivals_ * plan_.unit_blocks;
      // The counter may pass the largest number.
      while (static_cast<int>(ReadCounter(Counter()) - target) < 0) {
      }
      DeviceFence(SyncPoint::kArrivalFence);
    }
    BlockBarrier(SyncPoint::kArrived);
  }

 private:
  static constexpr int kGateWeights = Tile::kUnits * kChunkDepth;
  static constexpr int kChunkWeights = kGates * kGateWeights;
  static constexpr int kPartElements = Tile::kRows * Tile::kPartStride;
  // Vectors of one staged row, and those of a stage that one lane carries.
  static constexpr int kRowVectors =
      kChunkDepth * static_cast<int>(sizeof(Operand)) / kVectorBytes;
  static constexpr int kLaneVectors = Tile::kRows * kRowVectors / kWarpLanes;

  ECORNN_DEVICE static int Warp() { return ThreadIndex() / kWarpLanes; }
  // Whether this warp has a part in the products.
  ECORNN_DEVICE static bool Multiplies() {
    return Tile::kProductWarps == kWarps || Warp() < Tile::kProductWarps;
  }
  ECORNN_DEVICE static int LaneVector(int i) {
    return ThreadIndex() % kWarpLanes + i * kWarpLanes;
  }

  template <class T>
  ECORNN_DEVICE T* ScratchAt(size_t offset) const {
    return reinterpret_cast<T*>(scratch_ + offset);
  }
  ECORNN_DEVICE int64_t operand_elements() const {
    return int64_t{plan_.chunks} * rows() * kChunkDepth;
  }
  ECORNN_DEVICE Pointer<unsigned> Counter() const {
    return Global(ScratchAt<unsigned>(plan_.counters),
                  int64_t{plan_.row_slices} * kCounterStride) +
           row_slice_ * kCounterStride;
  }
  ECORNN_DEVICE Pointer<Operand> Stage() const {
    constexpr int kElements = Tile::kRows * kStageStride<Operand>;
    return Shared<Operand>(0, Tile::kProductWarps * kElements) +
           Warp() * kElements;
  }
  ECORNN_DEVICE Pointer<C> Parts() const {
    return Shared<C>(plan_.shared_parts,
                     Tile::kProductWarps * kGates * kPartElements);
  }
  ECORNN_DEVICE Pointer<unsigned char> Marks() const {
    return Shared<unsigned char>(plan_.shared_marks, rows());
  }

  // Chunks of the first slice that warps keep in registers.
  ECORNN_DEVICE int kept_chunks() const {
    constexpr int kAll = Tile::kKept * Tile::kProductWarps;
    return plan_.chunks < kAll ? plan_.chunks : kAll;
  }
  // Those of all slices that lie in shared memory.
  ECORNN_DEVICE int64_t shared_chunks() const {
    return int64_t{slices()} * plan_.chunks - kept_chunks();
  }
  ECORNN_DEVICE Pointer<Operand> SharedWeights() const {
    return Shared<Operand>(
        plan_.shared_weights,
        shared_chunks() * kChunkWeights + Tile::kWeightPadding);
  }
  ECORNN_DEVICE Pointer<const Operand> GlobalWeights() const {
    return Global<const Operand>(
        ScratchAt<Operand>(plan_.weights),
        int64_t{plan_.unit_slices} * plan_.chunks * kChunkWeights +
            Tile::kWeightPadding);
  }
  ECORNN_DEVICE Pointer<const Operand> WeightsOf(int slice, int chunk) const {
    if (plan_.persistent) {
      return SharedWeights() +
             (int64_t{slice} * plan_.chunks + chunk - kept_chunks()) *
                 kChunkWeights;
    }
    return GlobalWeights() +
           (int64_t{first_slice_ + slice} * plan_.chunks + chunk) *
               kChunkWeights;
  }

  ECORNN_DEVICE void Fetch(Pointer<const Operand> operand, int chunk,
                           int row_tile, unsigned used_rows,
                           Vector16* vectors) const {
    constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Operand));
    const Pointer<const Operand> tile =
        operand +
        (int64_t{chunk} * rows() + row_tile * Tile::kRows) * kChunkDepth;
    ECORNN_UNROLL for (int i = 0; i < kLaneVectors; ++i) {
      vectors[i] = used_rows >> i & 1
                       ? LoadVectorL2<Operand>(tile + LaneVector(i) * kWidth)
                       : Vector16{{0, 0, 0, 0}};
    }
  }
  ECORNN_DEVICE static void PutOnStage(Pointer<Operand> stage,
                                       const Vector16* vectors) {
    constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(Operand));
    ECORNN_UNROLL for (int i = 0; i < kLaneVectors; ++i) {
      const int v = LaneVector(i);
      StoreVector<Operand>(stage + v / kRowVectors * kStageStride<Operand> +
                               v % kRowVectors * kWidth,
                           vectors[i]);
    }
  }

  template <int kFirst, int kCount>
  ECORNN_DEVICE void MultiplyChunk(int slice, int base, int j,
                                   const typename Tile::Rows& rows,
                                   Sums* sums) {
    if constexpr (Tile::kKept > 0) {
      if (slice == 0 && base == 0 && j < Tile::kKept) {
        ECORNN_UNROLL for (int g = kFirst; g < kFirst + kCount; ++g) {
          Tile::MultiplyAdd(sums[g], kept_[j * kGates + g], rows);
        }
        return;
      }
    }
    const Pointer<const Operand> from =
        WeightsOf(slice, Warp() + (base + j) * Tile::kProductWarps);
    ECORNN_UNROLL for (int g = kFirst; g < kFirst + kCount; ++g) {
      typename Tile::Weights weights;
      weights.Load(from + g * kGateWeights);
      Tile::MultiplyAdd(sums[g], weights, rows);
    }
  }

  const Plan& plan_;
  unsigned char* const scratch_;
  const Sequence& sequence_;
  const int64_t row_slice_;
  const int first_slice_;
  unsigned arrivals_ = 0;
  bool marked_ = false;
  typename Tile::Weights kept_[Tile::kKept > 0 ? Tile::kKept* kGates : 1];
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_BLOCK_H_
