// The GRU cell (Cho et al., "Learning Phrase Representations using RNN
// Encoder-Decoder for Statistical Machine Translation", 2014). Gates in Keras's
// order z, r, h; x_g and s_g are gate g's input side and recurrent sum.
//
//   z, r = gate(x_z + s_z), gate(x_r + s_r)
//   reset after:  n = candidate(x_n + r * s_n)     s_n = h U_n + its bias
//   else:         n = candidate(x_n + s_n)         s_n = (r * h) U_n
//   h' = z * h + (1 - z) * n
//
// "Reset after" is the form of cuDNN and of Keras's default; it keeps the
// recurrent product independent of r.
//
// The step and its derivative are written on any type V with arithmetic and the
// functions of a policy pair: a vector on the CPU, a scalar on a GPU.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_GRU_MATH_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_GRU_MATH_H_

#include "../activation_math.h"

namespace ecornn {
namespace ECORNN_TARGET {

// 1 - z, the candidate's share of h'.
template <class V>
ECORNN_INLINE V CandidateShare(V z) {
  using C = typename ScalarOf<V>::Type;
  return Broadcast(C(1)) - z;
}

// h' = z h + (1 - z) n. The shorter n + z (h - n) makes a NaN of an infinite n.
template <class V>
ECORNN_INLINE V GruBlend(V z, V h, V n) {
  return Fma(z, h, CandidateShare(z) * n);
}

// The derivative at the update gate and the candidate. `h` entered the step,
// `grad_h` is the gradient of what left. Puts the gradients of their
// pre-activations into `grad_z` and `grad_n` and returns what z hands straight
// to h.
template <class V, class Functions>
ECORNN_INLINE V GruStateGradient(const Functions& f, V saved_z, V saved_n, V h,
                                 V grad_h, V& grad_z, V& grad_n) {
  const V z = f.gate.Restore(saved_z);
  const V n = f.candidate.Restore(saved_n);
  grad_z = grad_h * (h - n) * f.gate.Slope(saved_z, z);
  grad_n = CandidateShare(z) * grad_h * f.candidate.Slope(saved_n, n);
  return grad_h * z;
}

// The gradient of the reset gate's pre-activation. r multiplied `factor`, and
// `grad` is the gradient of that product.
template <class V, class Functions>
ECORNN_INLINE V GruResetGradient(const Functions& f, V saved_r, V r, V factor,
                                 V grad) {
  return grad * factor * f.gate.Slope(saved_r, r);
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_CELL_GRU_MATH_H_
