// Teams for tests: threads that claim tasks, and one thread that takes them in
// another order.
#ifndef TF_ECORNN_TESTS_ENGINE_TEAMS_H_
#define TF_ECORNN_TESTS_ENGINE_TEAMS_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "../../cc/recurrence/team.h"
#include "random.h"

namespace ecornn {
namespace test {

inline std::vector<int> Shuffled(int count, Random* random) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) {
    std::swap(order[i], order[random->Below(i + 1)]);
  }
  return order;
}

// New threads for each Run. They wait for each other before the first task, and
// each then has at least one, so that tasks do meet, however short they are.
class ThreadTeam final : public Team {
 public:
  ThreadTeam(int size, uint64_t seed) : size_(size), random_(seed) {}

  int size() const override { return size_; }

  void Run(int count, Task task, void* context) override {
    const std::vector<int> order = Shuffled(count, &random_);
    const int members = std::min(size_, count);
    std::atomic<int> arrived{0};
    std::atomic<int> next{members};
    const auto work = [&](int member) {
      arrived.fetch_add(1);
      while (arrived.load() < members) std::this_thread::yield();
      // Relaxed: claiming must not order one task's memory before another's, or
      // ThreadSanitizer would see no race between them.
      for (int i = member; i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        task(context, order[i]);
      }
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < members; ++i) helpers.emplace_back(work, i);
    if (members > 0) work(0);
    for (std::thread& helper : helpers) helper.join();
  }

 private:
  const int size_;
  Random random_;
};

// The caller alone, who says to be many: from the last task to the first, or in
// random order.
class ReorderingTeam final : public Team {
 public:
  enum class Order { kReversed, kShuffled };

  ReorderingTeam(int size, Order order, uint64_t seed)
      : size_(size), order_(order), random_(seed) {}

  int size() const override { return size_; }

  void Run(int count, Task task, void* context) override {
    std::vector<int> order = Shuffled(count, &random_);
    if (order_ == Order::kReversed) {
      std::sort(order.begin(), order.end(), std::greater<int>());
    }
    for (int i : order) task(context, i);
  }

 private:
  const int size_;
  const Order order_;
  Random random_;
};

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_TEAMS_H_
