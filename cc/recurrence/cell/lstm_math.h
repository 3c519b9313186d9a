// The LSTM cell (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997,
// with the forget gate of Gers et al., 2000). Gates in Keras's order i, f, c,
// o.
//
//   i, f, o = gate(z_i), gate(z_f), gate(z_o)      g = candidate(z_c)
//   c' = f * c + i * g                             h' = o * candidate(c')
//
// The step and its derivative are written on any type V with arithmetic and the
// functions of a policy pair: a vector on the CPU, a scalar on a GPU.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_LSTM_MATH_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_LSTM_MATH_H_

#include "../activation_math.h"

namespace ecornn {
namespace ECORNN_TARGET {

// The gates of one element: pre-activations in `z`, turned into activations;
// `saved` gets what the backward pass needs of them.
template <class V, class Functions>
ECORNN_INLINE void LstmGates(const Functions& f, V (&z)[4], V (&saved)[4]) {
  const V input = f.gate.Apply(z[0]);
  const V forget = f.gate.Apply(z[1]);
  const V fresh = f.candidate.Apply(z[2]);
  const V output = f.gate.Apply(z[3]);
  saved[0] = f.gate.Save(z[0], input);
  saved[1] = f.gate.Save(z[1], forget);
  saved[2] = f.candidate.Save(z[2], fresh);
  saved[3] = f.gate.Save(z[3], output);
  z[0] = input;
  z[1] = forget;
  z[2] = fresh;
  z[3] = output;
}

// c', from the activated gates and c.
template <class V>
ECORNN_INLINE V LstmCellState(const V (&gates)[4], V c) {
  return Fma(gates[1], c, gates[0] * gates[2]);
}

// The activated gates again, from what LstmGates saved.
template <class V, class Functions>
ECORNN_INLINE void LstmRestore(const Functions& f, const V (&saved)[4],
                               V (&gates)[4]) {
  gates[0] = f.gate.Restore(saved[0]);
  gates[1] = f.gate.Restore(saved[1]);
  gates[2] = f.candidate.Restore(saved[2]);
  gates[3] = f.gate.Restore(saved[3]);
}

// The derivative. `c` entered the step, `next` left it and `squashed` is its
// activation; `grad_h` and `grad_c` are the gradients of what left. Puts the
// gradients of the pre-activations into `grad` and returns that of `c`.
template <class V, class Functions>
ECORNN_INLINE V LstmGradient(const Functions& f, const V (&saved)[4],
                             const V (&gates)[4], V c, V next, V squashed,
                             V grad_h, V grad_c, V (&grad)[4]) {
  const V slope = f.candidate.Slope(f.candidate.Save(next, squashed), squashed);
  const V total_c = Fma(grad_h * gates[3], slope, grad_c);
  grad[0] = total_c * gates[2] * f.gate.Slope(saved[0], gates[0]);
  grad[1] = total_c * c * f.gate.Slope(saved[1], gates[1]);
  grad[2] = total_c * gates[0] * f.candidate.Slope(saved[2], gates[2]);
  grad[3] = grad_h * squashed * f.gate.Slope(saved[3], gates[3]);
  return total_c * gates[1];
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_CELL_LSTM_MATH_H_
