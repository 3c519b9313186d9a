// The gradients of the biases: sums over rows and steps, first by groups of
// rows whose bounds depend on the batch alone, then over the groups in their
// order.
#ifndef TF_ECORNN_CC_RECURRENCE_BIAS_SUMS_H_
#define TF_ECORNN_CC_RECURRENCE_BIAS_SUMS_H_

#include "engine.h"
#include "layout.h"
#include "storage.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class Cell>
class BiasSums {
 public:
  using S = typename Cell::S;
  using C = ComputeType<S>;

  BiasSums(const BackwardArgs<S>& args, int64_t groups)
      : bias_(args.grad_bias),
        recurrent_bias_(args.grad_recurrent_bias),
        units_(args.sequence.units),
        gates_(Cell::kGates * units_),
        width_(gates_ + (Cell::kSplitCandidate ? units_ : 0)),
        groups_(groups) {}

  void Place(Arena& arena) {
    sums_ = arena.template Take<C>(Wanted() ? groups_ * width_ : 0);
  }

  void Clear(int64_t first_group, int64_t last_group) {
    if (!Wanted()) return;
    ZeroRow(Group(first_group), (last_group - first_group) * width_);
  }

  // A group's sums: of the gates (GU), then (U) of the candidate's recurrent
  // side where that differs from its input side. Null when no bias has a
  // gradient.
  C* Group(int64_t group) const {
    return Wanted() ? sums_ + group * width_ : nullptr;
  }

  void Write() const {
    if (!Wanted()) return;
    for (int64_t i = 0; i < width_; ++i) {
      C sum = C(0);
      for (int64_t g = 0; g < groups_; ++g) sum += sums_[g * width_ + i];
      // What lies beyond the gates replaces the candidate's in the recurrent
      // bias.
      if (i < gates_ && bias_ != nullptr) Narrow(sum, bias_ + i);
      if (recurrent_bias_ != nullptr) {
        Narrow(sum, recurrent_bias_ + (i < gates_ ? i : i - units_));
      }
    }
  }

 private:
  bool Wanted() const { return bias_ != nullptr || recurrent_bias_ != nullptr; }

  S* const bias_;
  S* const recurrent_bias_;
  const int64_t units_;
  const int64_t gates_;
  const int64_t width_;
  const int64_t groups_;
  C* sums_;  // in the scratch memory: (groups, width)
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_BIAS_SUMS_H_
