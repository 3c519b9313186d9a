// Several threads in one recurrence: each takes some of the units of every row.
//
// Work comes in stages, a phase of a step each, and a stage in chunks, a range
// of units each. A stage begins when the one before is done, since it reads
// what all chunks of that wrote. Threads may come at any time: each takes
// chunks that nobody has taken, its own ones first, so that weights stay in one
// core's cache. Nobody waits for a thread that has not come, only for chunks
// under way.
#ifndef TF_ECORNN_CC_RECURRENCE_STAGES_H_
#define TF_ECORNN_CC_RECURRENCE_STAGES_H_

#include <sched.h>
#include <stdint.h>

#include "product.h"
#include "target.h"
#include "team.h"

namespace ecornn {
namespace ECORNN_TARGET {

// Calls a method of an object, which may multiply, for 0 ... count - 1, by the
// team.
template <auto kMethod, class Object>
void RunTasks(Team& team, int count, Object* object) {
  team.Run(
      count,
      [](void* context, int index) {
        BeginProducts();
        (static_cast<Object*>(context)->*kMethod)(index);
        EndProducts();
      },
      object);
}

class Stages {
 public:
  // The first stage in which a chunk is still to be had, on a line of its own.
  struct alignas(64) Chunk {
    int64_t free_in;
  };

  // To be called before the threads come. `chunks`: `count` of them.
  void Begin(int64_t stages, Chunk* chunks, int count) {
    stages_ = stages;
    chunks_ = chunks;
    count_ = count;
    for (int i = 0; i < count; ++i) chunks[i].free_in = 0;
    current_ = 0;
    done_ = 0;
  }

  // Works until all is done. Calls run(stage, chunk) for the chunks it takes,
  // from `own` on, and prepare(stage + 1) when it ends a stage: nobody else
  // works then.
  template <class Prepare, class Run>
  void Work(int own, const Prepare& prepare, const Run& run) {
    int64_t stage = __atomic_load_n(&current_, __ATOMIC_ACQUIRE);
    while (stage < stages_) {
      for (int i = 0; i < count_; ++i) {
        const int chunk = own + i < count_ ? own + i : own + i - count_;
        if (!Take(chunk, stage)) continue;
        run(stage, chunk);
        const int64_t done = __atomic_add_fetch(&done_, 1, __ATOMIC_ACQ_REL);
        if (done == count_ * (stage + 1)) {
          prepare(stage + 1);
          __atomic_store_n(&current_, stage + 1, __ATOMIC_RELEASE);
        }
      }
      stage = WaitForNext(stage);
    }
  }

 private:
  bool Take(int chunk, int64_t stage) {
    int64_t* free_in = &chunks_[chunk].free_in;
    int64_t expected = stage;
    return __atomic_load_n(free_in, __ATOMIC_RELAXED) == stage &&
           __atomic_compare_exchange_n(free_in, &expected, stage + 1, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }

  int64_t WaitForNext(int64_t stage) const {
    for (int turn = 1;; ++turn) {
      const int64_t current = __atomic_load_n(&current_, __ATOMIC_ACQUIRE);
      if (current != stage) return current;
      // A thread that is kept from its chunk needs the processor more than we.
      if (turn % 128 == 0) sched_yield();
#if defined(__SSE2__)
      __builtin_ia32_pause();
#endif
    }
  }

  int64_t stages_;
  Chunk* chunks_;
  int count_;
  alignas(64) int64_t current_;
  alignas(64) int64_t done_;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_STAGES_H_
