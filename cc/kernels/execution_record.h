// What executions of the fused ops took, node by node, while someone asks for
// it: see ecornn_record() and ecornn_recorded() in execution_record.cc.
#ifndef TF_ECORNN_CC_KERNELS_EXECUTION_RECORD_H_
#define TF_ECORNN_CC_KERNELS_EXECUTION_RECORD_H_

#include <chrono>

#include "../recurrence/sequence.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace ecornn {

// One execution of a kernel: its clock starts where this is made. Costs one
// load where nobody records.
class ExecutionRecord {
 public:
  explicit ExecutionRecord(tensorflow::OpKernelContext* context);

  // Enters the execution, which has ended, into the record.
  void Enter(const Sequence& sequence) const;

 private:
  tensorflow::OpKernelContext* const context_;  // null: not recorded
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_EXECUTION_RECORD_H_
