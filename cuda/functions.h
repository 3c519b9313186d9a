// The activations as the kernels call them: Keras's defaults in line, the
// others by a call that chooses at run time.
#ifndef TF_ECORNN_CUDA_FUNCTIONS_H_
#define TF_ECORNN_CUDA_FUNCTIONS_H_

#include "../cc/recurrence/sequence.h"
#include "scalar_math.h"

// After the math that it is written on.
#include "../cc/recurrence/activation_math.h"

namespace ecornn {
namespace cuda {

// A function of the list with one default that needs no call. The branches are
// the same for all threads.
template <class Default, Activation kDefault>
struct Function {
  RuntimeFunction other;

  ECORNN_DEVICE bool is_default() const { return other.kind == kDefault; }
  template <class V>
  ECORNN_DEVICE V Apply(V x) const {
    return is_default() ? Default().Apply(x) : other.Apply(x);
  }
  template <class V>
  ECORNN_DEVICE V Save(V x, V y) const {
    return other.Save(x, y);
  }
  template <class V>
  ECORNN_DEVICE V Restore(V saved) const {
    return is_default() ? saved : other.Restore(saved);
  }
  template <class V>
  ECORNN_DEVICE V Slope(V saved, V y) const {
    return is_default() ? Default().Slope(saved, y) : other.Slope(saved, y);
  }
};

struct Functions {
  Function<TanhFunction, Activation::kTanh> candidate;
  Function<SigmoidFunction, Activation::kSigmoid> gate;

  ECORNN_DEVICE explicit Functions(const Sequence& s)
      : candidate{{s.activation}}, gate{{s.recurrent_activation}} {}
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_FUNCTIONS_H_
