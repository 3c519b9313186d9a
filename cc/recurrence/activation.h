// The activation functions that a cell can apply, by their Keras names.
#ifndef TF_ECORNN_CC_RECURRENCE_ACTIVATION_H_
#define TF_ECORNN_CC_RECURRENCE_ACTIVATION_H_

namespace ecornn {

enum class Activation : int {
  kTanh,
  kSigmoid,
  kHardSigmoid,  // relu6(x + 3) / 6
  kHardTanh,     // x clipped to [-1, 1]
  kRelu,
  kRelu6,
  kLeakyRelu,  // slope 0.2 below zero
  kElu,        // alpha 1
  kSelu,       // Klambauer et al., "Self-Normalizing Neural Networks"
  kSoftsign,
  kSoftplus,
  kExponential,
  kLinear,
  kSilu,
  kGelu,  // x * Phi(x), the exact form with erf
};

inline constexpr const char* kActivationNames[] = {
    "tanh",     "sigmoid",     "hard_sigmoid", "hard_tanh", "relu",
    "relu6",    "leaky_relu",  "elu",          "selu",      "softsign",
    "softplus", "exponential", "linear",       "silu",      "gelu",
};

inline constexpr int kActivationCount =
    sizeof(kActivationNames) / sizeof(kActivationNames[0]);

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_ACTIVATION_H_
