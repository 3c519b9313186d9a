// An engine's team made of TensorFlow's intra-op threads.
#ifndef TF_ECORNN_CC_KERNELS_POOL_TEAM_H_
#define TF_ECORNN_CC_KERNELS_POOL_TEAM_H_

#include "../recurrence/team.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace ecornn {

// The caller and as many pool threads as TensorFlow's limits allow. Tasks are
// claimed: a pool thread that never gets to run leaves its share to the others,
// so a full pool, or one that is itself waiting for this op, only costs speed.
// While a thread works on tasks it flushes denormals to zero.
class PoolTeam final : public Team {
 public:
  explicit PoolTeam(tensorflow::OpKernelContext* context);

  int size() const override { return size_; }
  void Run(int count, Task task, void* context) override;

 private:
  tensorflow::thread::ThreadPool* pool_;
  int size_;
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_POOL_TEAM_H_
