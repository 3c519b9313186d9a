// What kernels may read and write, and when: bounds, who wrote first, races.
//
// A cell stands for four bytes, or for as few as are accessed on their own:
// each page of a kilobyte begins with large cells and changes to small ones,
// of one byte in shared memory and two in global memory, if need be. Working
// memory (BeginScratch) is where blocks may exchange data within a launch; of
// other global memory, what one block writes no other may touch until the next
// launch.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_MEMORY_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

#include "machine.h"

namespace ecornn {
namespace emulation {

// As cuda/nvidia.h declares a block's dynamic shared memory.
inline constexpr size_t kSharedAlignment = 128;

// How a read goes: by the multiprocessor's own cache, which does not see what
// other blocks write, or by the one that all share.
enum class Through : uint8_t { kOwnCache, kL2 };

// Where a pointer may point.
struct Extent {
  unsigned char* begin = nullptr;
  int64_t bytes = 0;
  bool shared = false;
};

// Before a launch: nobody has accessed anything.
void StartMemory();

// Fails unless a kernel may be told of these bytes of global memory.
void CheckGlobalExtent(const Extent& extent);

[[noreturn]] void FailOutOfBounds(const Extent& extent,
                                  const unsigned char* address, int64_t bytes,
                                  int element_bytes, const char* what);
[[noreturn]] void FailShared(const SharedCell& cell,
                             const unsigned char* address, const Moment& now,
                             bool write);
[[noreturn]] void FailMisaligned(const unsigned char* address, int alignment,
                                 const char* what);

void ReadGlobal(const unsigned char* address, int64_t bytes, Who who,
                Through through);
void WriteGlobal(const unsigned char* address, int64_t bytes, Who who);
// A counter's memory.
void CheckCounter(const unsigned char* address);

inline void CheckBounds(const Extent& extent, const unsigned char* address,
                        int64_t bytes, int element_bytes, const char* what) {
  const int64_t offset = address - extent.begin;
  if (extent.begin == nullptr || offset < 0 || offset + bytes > extent.bytes) {
    FailOutOfBounds(extent, address, bytes, element_bytes, what);
  }
}

// Gives each byte of a page of the block's shared memory a cell of its own.
void RefineShared(Block* block, size_t page);

// Calls use(cell, offset) with each cell of some shared memory.
template <class Use>
inline void ForSharedCells(Block* block, size_t offset, size_t bytes,
                           const Use& use) {
  while (bytes > 0) {
    const size_t page = offset >> kPageBits;
    const size_t within = offset % kPageBytes;
    const size_t here =
        bytes < kPageBytes - within ? bytes : kPageBytes - within;
    if (((offset | here) & ((size_t{1} << block->shifts[page]) - 1)) != 0) {
      RefineShared(block, page);
    }
    const int shift = block->shifts[page];
    SharedCell* cells =
        block->cells.get() + page * kPageBytes + (within >> shift);
    for (size_t i = 0; i < here >> shift; ++i) {
      use(cells[i], offset + (i << shift));
    }
    offset += here;
    bytes -= here;
  }
}

inline void ReadShared(const unsigned char* address, int64_t bytes, Who who) {
  Block& block = *current_thread->block;
  const Moment now = Now(who);
  ForSharedCells(
      &block, address - block.shared_begin, bytes,
      [&](SharedCell& cell, size_t offset) {
        if (cell.write.stamp < block.birth || !ComesBefore(cell.write, now)) {
          FailShared(cell, block.shared_begin + offset, now, false);
        }
        AddRead(&cell.read, now);
      });
}

inline void WriteShared(const unsigned char* address, int64_t bytes, Who who) {
  Block& block = *current_thread->block;
  const Moment now = Now(who);
  ForSharedCells(
      &block, address - block.shared_begin, bytes,
      [&](SharedCell& cell, size_t offset) {
        if (!ComesBefore(cell.write, now) || !ComesBefore(cell.read, now)) {
          FailShared(cell, block.shared_begin + offset, now, true);
        }
        cell.write = {now.clock, who};
      });
}

// Checks and notes an access to `bytes` at `address` of an extent.
inline void NoteRead(const Extent& extent, const unsigned char* address,
                     int64_t bytes, int element_bytes, Who who,
                     Through through) {
  CheckBounds(extent, address, bytes, element_bytes, "reads");
  if (extent.shared) {
    ReadShared(address, bytes, who);
  } else {
    ReadGlobal(address, bytes, who, through);
  }
}
inline void NoteWrite(const Extent& extent, const unsigned char* address,
                      int64_t bytes, int element_bytes, Who who) {
  CheckBounds(extent, address, bytes, element_bytes, "writes");
  if (extent.shared) {
    WriteShared(address, bytes, who);
  } else {
    WriteGlobal(address, bytes, who);
  }
}

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_MEMORY_H_
