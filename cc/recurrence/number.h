// Storage types of 16 bits, and the type that each storage type is computed in.
#ifndef TF_ECORNN_CC_RECURRENCE_NUMBER_H_
#define TF_ECORNN_CC_RECURRENCE_NUMBER_H_

#include <stdint.h>

namespace ecornn {

// IEEE 754 binary16, and the upper half of a binary32.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class S>
struct ComputeTypeOf {
  using Type = S;
};
template <>
struct ComputeTypeOf<Half> {
  using Type = float;
};
template <>
struct ComputeTypeOf<BFloat16> {
  using Type = float;
};

template <class S>
using ComputeType = typename ComputeTypeOf<S>::Type;

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_NUMBER_H_
