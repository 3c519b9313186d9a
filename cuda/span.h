// The part of a pass that one launch takes.
#ifndef TF_ECORNN_CUDA_SPAN_H_
#define TF_ECORNN_CUDA_SPAN_H_

#include <stdint.h>

#include "platform.h"

namespace ecornn {
namespace cuda {

struct Span {
  int64_t first;  // steps, counted as the pass takes them
  int64_t last;   // one past
  int phase;      // of each step, or -1: all
  int parity;     // of the operands that the first step reads
  bool starts;    // the pass's beginning is part of it
  bool ends;      // and its end

  ECORNN_DEVICE bool Covers(int which) const {
    return phase < 0 || phase == which;
  }
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_SPAN_H_
