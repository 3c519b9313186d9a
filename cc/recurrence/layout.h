// Sizes shared by the passes: how rows are split, how rows of working memory
// are laid out, where in the scratch memory each array lies.
#ifndef TF_ECORNN_CC_RECURRENCE_LAYOUT_H_
#define TF_ECORNN_CC_RECURRENCE_LAYOUT_H_

#include <stddef.h>

#include "simd.h"

namespace ecornn {
namespace ECORNN_TARGET {

// A tile holds kTileRows x 4 sums; with a broadcast per row and one vector of
// weights it fills the 32 registers of AVX-512 or the 16 of AVX2 and SSE2. Of
// AMX's registers two take the rows.
#if defined(__AMX_BF16__)
inline constexpr int kTileRows = 32;
#elif defined(__AVX512F__)
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 3;
#endif
inline constexpr int kTileVectors = 4;

template <class N>
constexpr N MinOf(N a, N b) {
  return a < b ? a : b;
}
template <class N>
constexpr N MaxOf(N a, N b) {
  return a > b ? a : b;
}
template <class N>
constexpr N CeilDiv(N a, N b) {
  return (a + b - 1) / b;
}

// Elements from one row of working memory to the next: whole cache lines, and
// no multiple of 1 KiB, which would put the rows of a tile into few cache sets.
template <class C>
constexpr int64_t RowStride(int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(C);
  const int64_t lines = CeilDiv(elements, kLine);
  return (lines % 16 == 0 ? lines + 1 : lines) * kLine;
}

// Hands out parts of the scratch memory. With no base it only adds up sizes.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* Take(int64_t count) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return part;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

// How the batch is cut. Rows form groups whose bounds depend on the batch alone
// (sums over rows go group by group); a block is a run of whole groups that one
// thread takes through the whole sequence.
class RowSplit {
 public:
  RowSplit(int64_t batch, int64_t blocks)
      : batch_(batch),
        groups_(MinOf<int64_t>(batch, MaxOf<int64_t>(16, batch / 8))),
        blocks_(MaxOf<int64_t>(1, MinOf(blocks, groups_))) {}

  int64_t groups() const { return groups_; }
  int blocks() const { return static_cast<int>(blocks_); }
  int64_t FirstGroup(int64_t block) const { return groups_ * block / blocks_; }
  int64_t FirstRowOfGroup(int64_t group) const {
    return groups_ == 0 ? 0 : batch_ * group / groups_;
  }
  int64_t FirstRow(int64_t block) const {
    return FirstRowOfGroup(FirstGroup(block));
  }
  int64_t LargestBlock() const {
    int64_t largest = 0;
    for (int64_t i = 0; i < blocks_; ++i) {
      largest = MaxOf(largest, FirstRow(i + 1) - FirstRow(i));
    }
    return largest;
  }

 private:
  int64_t batch_;
  int64_t groups_;
  int64_t blocks_;
};

// Multiply-adds below which waking another thread costs more than it brings.
inline constexpr double kSerialWork = 2e5;

// Weights up to this size stay in a core's second-level cache.
inline constexpr double kResidentWeights = 640 * 1024;
inline bool IsResident(int64_t units, int64_t depth, int64_t element_bytes) {
  return double(units) * depth * element_bytes <= kResidentWeights;
}
// What a block's rows touch in a step should stay there as well, and several
// blocks a thread even out what else the machine does. Fewer rows than this
// make poor tiles. By `engine_speed lstm float 128,8,100,32 ... 128,64,100,32`:
// forward 91 GF/s from 12 to 64 rows, backward 91 up to 16 rows, 87 at 64.
inline constexpr double kBlockBytes = 96 * 1024;
inline constexpr int64_t kSmallestBlock = 16;

// More than this of a block's next step, fetched beforehand, drives out what
// the present one needs.
inline constexpr double kPrefetchedBytes = 256 * 1024;

// Saved sequences above this will not be in a cache when the backward pass
// comes. By `engine_speed lstm float 64,512,50,16` (46 MB): forward 90 GF/s if
// they go past the caches, else 68; at 6 MB the backward pass loses as much.
inline constexpr double kStreamedBytes = 32e6;

// Operands of one gate up to this size stay there beside a panel of large
// weights. By `engine_speed lstm float 1000,100,10,1`, the backward pass: 131
// GF/s with all rows at once, 124 with half of them, 113 panel by panel.
inline constexpr double kResidentOperands = 480 * 1024;

// Packed weights that fewer tiles use, over all steps, are not worth their
// packing, large ones least of all. By `engine_speed lstm float`, forward:
// 128,12,1,8 takes 25 us in place and 26 packed, 128,24,1,8 takes 52 and 48;
// 1000,64,1,8 (11 tiles) 6.7 ms and 7.4, 1000,64,2,8 takes 12.3 and 12.4.
inline constexpr int64_t kUnpackedProducts = 3;
inline constexpr int64_t kUnpackedLargeProducts = 16;

// Into how many blocks of rows to cut a batch. `depth` is the length of a
// step's product for one row and unit, `bytes_per_row` what a row touches in a
// step.
inline int64_t ChooseBlocks(int64_t batch, int64_t steps, int64_t units,
                            int64_t depth, int64_t element_bytes,
                            int64_t bytes_per_row, int team_size) {
  const double work = double(batch) * steps * units * depth;
  int64_t blocks =
      work < 2 * kSerialWork
          ? 1
          : MinOf<int64_t>(team_size, static_cast<int64_t>(work / kSerialWork));
  // With resident weights a block need not share them with many rows: take few
  // rows through the whole sequence, so that their state stays close.
  if (IsResident(units, depth, element_bytes)) {
    const int64_t rows = MaxOf<int64_t>(
        kSmallestBlock, static_cast<int64_t>(kBlockBytes / bytes_per_row));
    const int64_t rounds = CeilDiv(batch, rows * blocks);
    blocks *= MaxOf<int64_t>(1, rounds);
  }
  return blocks;
}

// Multiply-adds a thread should have in a step before several share the rows:
// some ten times what their meeting at the step's end costs. With less, two ops
// that run at once lose more than one alone gains.
inline constexpr double kStageWork = 60e3;
// With this many rows a thread, each goes its own way: weights then cost little
// beside the products, even those that come from memory in every step.
inline constexpr int64_t kFewRows = 1;
inline constexpr int64_t kFewRowsOfLarge = 4;

// How many threads share the units of all rows, step by step, in place of each
// taking rows of its own: then a thread reads its part of the weights alone. 1
// for none.
inline int ChooseSharers(int64_t batch, int64_t units, int64_t depth,
                         int64_t element_bytes, int64_t panels, int team_size) {
  const int64_t few =
      IsResident(units, depth, element_bytes) ? kFewRows : kFewRowsOfLarge;
  if (batch >= few * team_size) return 1;
  const double most = double(batch) * units * depth / kStageWork;
  const int64_t threads = MinOf<int64_t>(team_size, panels);
  return most >= threads ? static_cast<int>(threads)
                         : MaxOf(1, static_cast<int>(most));
}

// Into how many chunks of panels they cut a step: several each where weights
// come from memory anyway, so that one that is held up loses them to others.
inline int ChooseChunks(int sharers, int64_t units, int64_t depth,
                        int64_t element_bytes, int64_t panels) {
  const bool resident =
      double(units) * depth * element_bytes <= kResidentWeights * sharers;
  return resident ? sharers
                  : static_cast<int>(MinOf<int64_t>(panels, 4 * sharers));
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_LAYOUT_H_
