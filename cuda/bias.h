// The gradients of the biases: each row's sums over time, added row after row.
#ifndef TF_ECORNN_CUDA_BIAS_H_
#define TF_ECORNN_CUDA_BIAS_H_

#include "block_shape.h"
#include "scalar_math.h"

namespace ecornn {
namespace cuda {

template <class S>
struct BiasArgs {
  const ComputeType<S>* row_sums;  // (B, sums, U)
  S* grad_bias;                    // ? (gates, U)
  S* grad_recurrent_bias;          // ? (gates, U)
  int64_t batch;
  int64_t units;
  int gates;
  int sums;  // gates, and one more where the last gate's sides differ
};

template <class S>
ECORNN_KERNEL SumBiases(BiasArgs<S> args) {
  using C = ComputeType<S>;
  const int64_t width = args.sums * args.units;
  const int64_t i = BlockIndex() * ThreadCount() + ThreadIndex();
  if (i >= width) return;
  const auto rows = Global(args.row_sums, args.batch * width);
  C sum(0);
  for (int64_t b = 0; b < args.batch; ++b) sum += rows[b * width + i];
  const int64_t gate_width = args.gates * args.units;
  const S narrow = Narrow<S>(sum);
  // The last sum is the recurrent side of the last gate.
  const bool split = args.sums > args.gates;
  const bool last_gate = i >= gate_width - args.units && i < gate_width;
  if (i < gate_width && args.grad_bias != nullptr) {
    Global(args.grad_bias, gate_width)[i] = narrow;
  }
  if (args.grad_recurrent_bias != nullptr && !(split && last_gate)) {
    Global(args.grad_recurrent_bias,
           gate_width)[i < gate_width ? i : i - args.units] = narrow;
  }
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_BIAS_H_
