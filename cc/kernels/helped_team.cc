#include "helped_team.h"

#include <sched.h>
#include <stdint.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "flush_denormals.h"

namespace ecornn {
namespace {

// Outlives the call: a helper that starts late finds nothing left to claim.
//
// Tasks form a run for each member of the team. Whoever comes takes those of
// the run that belongs to its CPU first, then the others'. Tasks of one index
// mostly concern the same rows in every pass, whose data is then still in that
// CPU's cache.
class Batch {
 public:
  Batch(int count, int size, Team::Task task, void* context)
      : count_(count),
        task_(task),
        context_(context),
        runs_(std::min(count, size)) {
    for (int i = 0; i < RunCount(); ++i) runs_[i].next = FirstOf(i);
  }

  void Work() {
    const int home = std::max(0, sched_getcpu()) % RunCount();
    int run = home;
    int i = Claim(&run, home);
    if (i < 0) return;
    FlushDenormals flush;
    for (; i >= 0; i = Claim(&run, home)) {
      task_(context_, i);
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
        std::lock_guard<std::mutex> lock(mutex_);
        finished_.notify_all();
      }
    }
  }

  // Waits for tasks in progress. Each is held by a thread that is running it.
  void WaitForOthers() {
    for (int spin = 0; spin < 2000; ++spin) {
      if (Done()) return;
#if defined(__SSE2__)
      _mm_pause();
#endif
    }
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return Done(); });
  }

 private:
  // On a cache line of its own.
  struct alignas(64) Run {
    std::atomic<int> next;
  };

  int RunCount() const { return static_cast<int>(runs_.size()); }
  int FirstOf(int run) const {
    return static_cast<int>(int64_t{count_} * run / RunCount());
  }

  // A task that nobody has taken, from `*run` on round to `home`; -1 if there
  // is none.
  int Claim(int* run, int home) {
    do {
      const int i = runs_[*run].next.fetch_add(1, std::memory_order_relaxed);
      if (i < FirstOf(*run + 1)) return i;
      *run = (*run + 1) % RunCount();
    } while (*run != home);
    return -1;
  }

  bool Done() const { return done_.load(std::memory_order_acquire) == count_; }

  const int count_;
  const Team::Task task_;
  void* const context_;
  std::vector<Run> runs_;
  std::atomic<int> done_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace

void HelpedTeam::Run(int count, Task task, void* context) {
  const int helpers = std::min(size_, count) - 1;
  if (helpers <= 0) {
    FlushDenormals flush;
    for (int i = 0; i < count; ++i) task(context, i);
    return;
  }
  auto batch = std::make_shared<Batch>(count, size_, task, context);
  for (int i = 0; i < helpers; ++i) {
    Schedule([batch] { batch->Work(); });
  }
  batch->Work();
  batch->WaitForOthers();
}

}  // namespace ecornn
