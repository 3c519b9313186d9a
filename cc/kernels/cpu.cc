// The recurrent ops' CPU kernels: the CPU engine on TensorFlow's intra-op
// threads.
#include "../recurrence/engine.h"
#include "op.h"
#include "pool_team.h"

namespace ecornn {
namespace {

class CpuRunner {
 public:
  explicit CpuRunner(tensorflow::OpKernelContext* context) : team_(context) {}

  template <class S>
  absl::Status Scratch(const ForwardArgs<S>& args, size_t* bytes) {
    *bytes = EngineFor<S>(ActiveIsa()).forward_scratch(args, team_.size());
    return absl::OkStatus();
  }
  template <class S>
  absl::Status Scratch(const BackwardArgs<S>& args, size_t* bytes) {
    *bytes = EngineFor<S>(ActiveIsa()).backward_scratch(args, team_.size());
    return absl::OkStatus();
  }

  template <class S>
  absl::Status Run(const ForwardArgs<S>& args, void* scratch) {
    EngineFor<S>(ActiveIsa()).forward(args, scratch, team_);
    return absl::OkStatus();
  }
  template <class S>
  absl::Status Run(const BackwardArgs<S>& args, void* scratch) {
    EngineFor<S>(ActiveIsa()).backward(args, scratch, team_);
    return absl::OkStatus();
  }

 private:
  PoolTeam team_;
};

ECORNN_REGISTER_KERNELS(tensorflow::DEVICE_CPU, CpuRunner);

}  // namespace
}  // namespace ecornn
