// The emulated multiprocessors: blocks of threads, what each waits for, and
// the launch that is running.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_MACHINE_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_MACHINE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fibers.h"
#include "ordering.h"

namespace ecornn {
namespace emulation {

struct Block;
struct Counter;
struct Thread;

// A call in a kernel's source that synchronises.
struct Place {
  const char* call = nullptr;
  int point = -1;  // of SyncPoint
  const char* file = "";
  int line = 0;
};

// What all lanes of a warp call together. Each lane's lies on its own stack.
struct Collective {
  const char* name;
  // Checks that all lanes ask for the same and does it, for all of them.
  void (*run)(Collective* const* lanes);
};

enum class Wait : uint8_t {
  kNothing,  // it can run
  kBlock,
  kWarp,
  kCollective,
  kCounter,
  kEnded,
};

struct Thread {
  Fiber fiber;
  Block* block;
  int index;
  Wait wait;
  bool vote;
  Place place;  // where it waits, or what it passed last
  Collective* collective;

  // A counter that is read again and again without a change.
  Counter* counter;
  uint32_t counter_changes;
  int idle_reads;

  // What it knows, has read from counters, and released beyond its block.
  bool informed;
  Knowledge known;
  Knowledge pending;
  Knowledge released;
  uint32_t fenced;     // the clock at its last fence
  uint32_t exchanged;  // and at its last access to working memory
};

struct Warp {
  Block* block;
  int first;
  int lanes;
  uint32_t ready;  // a bit for each lane that can run
  int queued;      // position among the warps that can run, -1: none
  uint32_t barrier;
  int arrived;
  int collective_arrived;
  uint32_t exchanged;  // the last access that all lanes made together
};

// Some bytes of shared memory: four, or one where single bytes or halves of a
// page are accessed.
struct SharedCell {
  Access write;
  Access read;
};
inline constexpr int kPageBits = 10;
inline constexpr size_t kPageBytes = 1 << kPageBits;
inline constexpr int kWordShift = 2;

struct Free {
  void operator()(void* memory) const { free(memory); }
};

struct Block {
  int64_t index;
  size_t slot;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int count;  // of threads
  int ended;
  int arrived;

  // The clock goes on from block to block in one slot, so that what earlier
  // blocks left in the cells is known by its stamps: they are below `birth`.
  uint32_t clock = 0;
  uint32_t birth;
  uint32_t barrier;
  bool fenced;  // a thread of it has since the last barrier
  Knowledge known;
  Knowledge pending;
  Knowledge released;
  std::vector<int> informed;  // threads with knowledge of their own

  // What is never touched of them costs nothing.
  std::unique_ptr<unsigned char[], Free> shared;  // with room to align it
  std::unique_ptr<SharedCell[], Free> cells;      // a page's lie at its begin
  std::vector<uint8_t> shifts;  // of each page: log2 of the bytes of its cells
  size_t shared_room = 0;
  size_t shared_bytes;
  unsigned char* shared_begin;
};

struct Counter {
  uint32_t changes = 0;
  Knowledge knowledge;
  std::vector<Thread*> waiting;
};

// What a kernel is called with; `call` calls it.
struct Kernel {
  void (*call)(const void* arguments);
  const void* arguments;
  const void* address;
  const char* signature;
};

struct LaunchRequest {
  int64_t blocks;
  int threads;
  size_t shared_bytes;
  bool cooperative;
};

// Launches of one seed differ by their number.
struct Seed {
  uint64_t given;
  uint64_t launch;
};

struct Running {
  Kernel kernel;
  LaunchRequest request;
  Seed seed;
  uint64_t random;
  std::vector<std::unique_ptr<Block>> slots;  // kept for later launches
  std::vector<Block*> live;
  std::vector<Warp*> ready;
  std::vector<std::vector<FenceEvent>> fences;  // by a block's index
  std::unordered_map<uintptr_t, Counter> counters;
  const Block* starved;  // a block that others are preferred to
  bool failed;
  std::string fault;

  uint64_t Random(uint64_t below);
};

// The launch under way, and its thread under way.
extern Running running;
extern Thread* current_thread;

inline Moment Now(Who who) {
  const Block& b = *current_thread->block;
  return {b.clock, b.barrier, b.warps[WarpOf(who)].barrier, who};
}
inline Who Self() { return static_cast<Who>(current_thread->index); }
inline Who WholeWarp() {
  return static_cast<Who>(kWholeWarp |
                          current_thread->index / kWarpLanes * kWarpLanes);
}

// Ends the launch: says which thread of which kernel did what. Does not return.
[[noreturn]] void Fail(const char* format, ...)
    __attribute__((format(printf, 1, 2)));

// Makes a thread run again when its turn comes.
void MakeReady(Thread* thread);
// Lets others run until the current thread is made ready.
void WaitFor(Wait what);
// Lets others run; comes back some time later.
void Yield();

// Runs a kernel to its end, or to the first fault, of which it returns false
// and leaves the text in `running.fault`.
bool RunLaunch(const Kernel& kernel, const LaunchRequest& request,
               const Seed& seed);

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_MACHINE_H_
