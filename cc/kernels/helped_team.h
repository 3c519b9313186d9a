// A team whose helpers come from some pool of threads, if they come at all.
#ifndef TF_ECORNN_CC_KERNELS_HELPED_TEAM_H_
#define TF_ECORNN_CC_KERNELS_HELPED_TEAM_H_

#include <functional>

#include "../recurrence/team.h"

namespace ecornn {

// The caller and up to size - 1 helpers. Tasks are claimed: a helper that never
// gets to run leaves its share to the others, so a full pool, or one that is
// itself waiting for this call, only costs speed. While a thread works on tasks
// it flushes denormals to zero.
class HelpedTeam : public Team {
 public:
  int size() const override { return size_; }
  void Run(int count, Task task, void* context) override;

 protected:
  explicit HelpedTeam(int size) : size_(size < 1 ? 1 : size) {}

  // Hands `work` to the pool, which may run it at any time, also after this
  // team is gone, or never.
  virtual void Schedule(std::function<void()> work) = 0;

 private:
  const int size_;
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_HELPED_TEAM_H_
