// An engine's team made of TensorFlow's intra-op threads.
#ifndef TF_ECORNN_CC_KERNELS_POOL_TEAM_H_
#define TF_ECORNN_CC_KERNELS_POOL_TEAM_H_

#include "helped_team.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace ecornn {

// The caller and as many pool threads as TensorFlow's limits allow.
class PoolTeam final : public HelpedTeam {
 public:
  explicit PoolTeam(tensorflow::OpKernelContext* context);

 private:
  void Schedule(std::function<void()> work) override;

  tensorflow::thread::ThreadPool* const pool_;
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_POOL_TEAM_H_
