// Which accesses come before which: within a block by its barriers, between
// blocks by fences and counters.
//
// Within a block. The block's clock ticks at each barrier and fence, and an
// access is stamped with it. It comes before an access of now if one thread did
// both, if the block has met at a barrier since, or the warp if both are in it.
//
// Between blocks. A fence of thread x makes an event of its block, numbered
// from 1: it covers what comes before the fence. Knowledge counts, for each
// block, the events that one knows of. Adding to a counter leaves there what
// the adding thread released at its last fence; who reads the counter takes it
// up at its own next fence. So an access of another block comes before those of
// now only if one of its block's events that we know of covers it.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_ORDERING_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_ORDERING_H_

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace ecornn {
namespace emulation {

inline constexpr int kWarpLanes = 32;

// Who accessed: a thread's index in its block, or any lane of its warp, or
// threads of several warps.
using Who = uint16_t;
inline constexpr Who kIndexMask = 0x3ff;
inline constexpr Who kWholeWarp = 0x400;
inline constexpr Who kSeveralWarps = 0x800;
inline constexpr Who kNobody = 0xffff;
inline int WarpOf(Who who) { return (who & kIndexMask) / kWarpLanes; }

struct Access {
  uint32_t stamp;
  Who who;
};

// The clock of the block of who accesses now, and the times of the last
// barriers: stamps below are of before.
struct Moment {
  uint32_t clock;
  uint32_t block_barrier;
  uint32_t warp_barrier;
  Who who;
};

inline bool ComesBefore(Access earlier, const Moment& now) {
  if (earlier.stamp < now.block_barrier) return true;
  if (earlier.who & kSeveralWarps) return false;
  if (WarpOf(earlier.who) != WarpOf(now.who)) return false;
  if (earlier.stamp < now.warp_barrier) return true;
  return earlier.who == now.who && !(now.who & kWholeWarp);
}

// One access that stands for all reads that nothing has come after.
inline void AddRead(Access* read, const Moment& now) {
  const Access earlier = *read;
  read->stamp = now.clock;
  if (earlier.stamp < now.block_barrier) {
    read->who = now.who;
  } else if (earlier.who & kSeveralWarps ||
             WarpOf(earlier.who) != WarpOf(now.who)) {
    read->who = kSeveralWarps;
  } else if (earlier.stamp < now.warp_barrier) {
    read->who = now.who;
  } else if (earlier.who != now.who) {
    read->who = kWholeWarp | (now.who & kIndexMask);
  }
}

// What a fence covers.
struct FenceEvent {
  uint32_t clock;          // what its own thread did until then
  uint32_t block_barrier;  // what any thread of the block did before
  uint32_t warp_barrier;   // what its warp did before
  Who who;                 // kNobody: no thread's own
};

inline bool Covers(const FenceEvent& event, Access access) {
  if (access.stamp < event.block_barrier) return true;
  if (event.who == kNobody || access.who & kSeveralWarps) return false;
  if (WarpOf(access.who) != WarpOf(event.who)) return false;
  if (access.stamp < event.warp_barrier) return true;
  return access.who == event.who && access.stamp <= event.clock;
}

// Whether one of the first `known` events covers an access. `*found` keeps the
// number of one that does, 0 if none is known yet.
inline bool IsCovered(const std::vector<FenceEvent>& events, uint32_t known,
                      Access access, uint32_t* found) {
  if (*found != 0 && *found <= known) return true;
  for (uint32_t n = known; n > 0; --n) {
    // Earlier fences came before the access.
    if (events[n - 1].clock < access.stamp) return false;
    if (Covers(events[n - 1], access)) {
      *found = n;
      return true;
    }
  }
  return false;
}

// Of each block, how many of its fences are known. Empty: of none.
class Knowledge {
 public:
  bool empty() const { return counts_.empty(); }
  void clear() { counts_.clear(); }
  uint32_t operator[](size_t block) const {
    return counts_.empty() ? 0 : counts_[block];
  }
  void Set(size_t block, uint32_t count, size_t blocks) {
    if (counts_.empty()) counts_.resize(blocks);
    counts_[block] = count;
  }
  void Join(const Knowledge& other) {
    if (other.counts_.empty()) return;
    if (counts_.empty()) {
      counts_ = other.counts_;
      return;
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (other.counts_[i] > counts_[i]) counts_[i] = other.counts_[i];
    }
  }

 private:
  std::vector<uint32_t> counts_;
};

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_ORDERING_H_
