// Masked steps that follow each other.
#ifndef TF_ECORNN_CC_RECURRENCE_MASKED_RUN_H_
#define TF_ECORNN_CC_RECURRENCE_MASKED_RUN_H_

#include <stdint.h>

#include "target.h"

namespace ecornn {
namespace ECORNN_TARGET {

// A run of masked steps, as places in sequences (B, T, ...).
struct MaskedRun {
  int64_t first;
  int64_t count;
};

// The run that a walk through a row's steps, by +1 or -1 in time, enters at the
// masked step t; of no steps where the one before was masked as well. Memory of
// a whole run is cleared several times as fast as step by step.
inline MaskedRun EnteredRun(const bool* mask, int64_t steps, int64_t row,
                            int64_t t, int64_t direction) {
  const bool* valid = mask + row * steps;
  const auto is_masked = [&](int64_t time) {
    return time >= 0 && time < steps && !valid[time];
  };
  if (is_masked(t - direction)) return {0, 0};
  int64_t end = t;
  while (is_masked(end)) end += direction;
  const int64_t count = (end - t) * direction;
  return {row * steps + (direction > 0 ? t : end + 1), count};
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_MASKED_RUN_H_
