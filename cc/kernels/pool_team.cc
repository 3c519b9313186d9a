#include "pool_team.h"

#include <algorithm>
#include <utility>

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/util/work_sharder.h"

namespace ecornn {
namespace {

const tensorflow::DeviceBase::CpuWorkerThreads& Workers(
    tensorflow::OpKernelContext* context) {
  return *context->device()->tensorflow_cpu_worker_threads();
}

}  // namespace

PoolTeam::PoolTeam(tensorflow::OpKernelContext* context)
    : HelpedTeam(std::min(Workers(context).num_threads,
                          tensorflow::GetPerThreadMaxParallelism())),
      pool_(Workers(context).workers) {}

void PoolTeam::Schedule(std::function<void()> work) {
  pool_->Schedule(std::move(work));
}

}  // namespace ecornn
