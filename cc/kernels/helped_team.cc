#include "helped_team.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "flush_denormals.h"

namespace ecornn {
namespace {

// Outlives the call: a helper that starts late finds nothing left to claim.
class Batch {
 public:
  Batch(int count, Team::Task task, void* context)
      : count_(count), task_(task), context_(context) {}

  void Work() {
    int i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= count_) return;
    FlushDenormals flush;
    for (; i < count_; i = next_.fetch_add(1, std::memory_order_relaxed)) {
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
  bool Done() const { return done_.load(std::memory_order_acquire) == count_; }

  const int count_;
  const Team::Task task_;
  void* const context_;
  std::atomic<int> next_{0};
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
  auto batch = std::make_shared<Batch>(count, task, context);
  for (int i = 0; i < helpers; ++i) {
    Schedule([batch] { batch->Work(); });
  }
  batch->Work();
  batch->WaitForOthers();
}

}  // namespace ecornn
