// Activation functions, with the derivative taken from what the forward pass
// saved. V is a vector of the CPU's or, on a GPU, a scalar: the target's own
// math, vector_math.h or cuda/scalar_math.h, comes first.
//
// Each function is a policy of four parts: Apply(x) is its value y; Save(x, y)
// is what to keep for the backward pass; Restore(saved) gives y back; and
// Slope(saved, y) is dy/dx. Most functions keep y and nothing else; silu and
// gelu are not invertible, hard_tanh's y does not tell its kinks from what lies
// beyond, and softsign's does not tell how far out x was: they keep x. At kinks
// the slope is TensorFlow's.
#ifndef TF_ECORNN_CC_RECURRENCE_ACTIVATION_MATH_H_
#define TF_ECORNN_CC_RECURRENCE_ACTIVATION_MATH_H_

#include "activation.h"
#include "target.h"

namespace ecornn {
namespace ECORNN_TARGET {

// The part of functions whose y tells all.
struct KeepsValue {
  template <class V>
  ECORNN_INLINE V Save(V, V y) const {
    return y;
  }
  template <class V>
  ECORNN_INLINE V Restore(V saved) const {
    return saved;
  }
};

struct TanhFunction : KeepsValue {
  template <class V>
  ECORNN_INLINE V Apply(V x) const {
    return Tanh(x);
  }
  template <class V>
  ECORNN_INLINE V Slope(V, V y) const {
    using C = typename ScalarOf<V>::Type;
    return Fma(-y, y, Broadcast(C(1)));
  }
};

struct SigmoidFunction : KeepsValue {
  template <class V>
  ECORNN_INLINE V Apply(V x) const {
    return Sigmoid(x);
  }
  template <class V>
  ECORNN_INLINE V Slope(V, V y) const {
    return Fma(-y, y, y);
  }
};

inline constexpr double kLeakySlope = 0.2;
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
inline constexpr double kInvSqrt2 = 0.70710678118654752440;
inline constexpr double kInvSqrt2Pi = 0.39894228040143267794;

// Phi(x), the normal distribution function; 1 + erf loses digits far to the
// left, where x * Phi(x) is below what a sum with 1 would keep as well.
template <class V>
ECORNN_INLINE V NormalCdf(V x) {
  using C = typename ScalarOf<V>::Type;
  return Fma(Erf(x * Broadcast(C(kInvSqrt2))), Broadcast(C(0.5)),
             Broadcast(C(0.5)));
}

template <class V>
ECORNN_INLINE V Softplus(V x) {
  return Log1p(ExpClamped(-Abs(x))) + Max(V{}, x);
}

// x where it meets sigmoid(x), which goes no lower than a smallest number: a
// hugely negative x must not make that large again.
template <class V>
ECORNN_INLINE V SiluFactor(V x) {
  return Max(Broadcast(ExpConstants<V>::kLowest), x);
}

template <class V>
ECORNN_OUTLINE V ApplyActivation(Activation kind, V x) {
  using C = typename ScalarOf<V>::Type;
  const V zero = {};
  const V one = Broadcast(C(1));
  switch (kind) {
    case Activation::kTanh:
      return Tanh(x);
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kHardSigmoid:
      return Min(Broadcast(C(6)), Max(zero, x + Broadcast(C(3)))) *
             Broadcast(C(1.0 / 6));
    case Activation::kHardTanh:
      return Min(one, Max(-one, x));
    case Activation::kRelu:
      return Max(zero, x);
    case Activation::kRelu6:
      return Min(Broadcast(C(6)), Max(zero, x));
    case Activation::kLeakyRelu:
      return x > zero ? x : x * Broadcast(C(kLeakySlope));
    case Activation::kElu:
      return x > zero ? x : Expm1Negative(Min(zero, x));
    case Activation::kSelu:
      return x > zero ? x * Broadcast(C(kSeluScale))
                      : Expm1Negative(Min(zero, x)) *
                            Broadcast(C(kSeluScale * kSeluAlpha));
    case Activation::kSoftsign:
      return x / (one + Abs(x));
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kExponential:
      return Exp(x);
    case Activation::kSilu:
      return SiluFactor(x) * Sigmoid(x);
    case Activation::kGelu:
      return x * NormalCdf(x);
    case Activation::kLinear:
      break;
  }
  return x;
}

// dy/dx from y, or from x where the function keeps x.
template <class V>
ECORNN_OUTLINE V ActivationSlope(Activation kind, V saved, V y) {
  using C = typename ScalarOf<V>::Type;
  const V zero = {};
  const V one = Broadcast(C(1));
  switch (kind) {
    case Activation::kTanh:
      return Fma(-y, y, one);
    case Activation::kSigmoid:
      return Fma(-y, y, y);
    case Activation::kHardSigmoid:
      return ((y > zero) & (y < one)) ? Broadcast(C(1.0 / 6)) : zero;
    case Activation::kHardTanh:
      return Abs(saved) <= one ? one : zero;
    case Activation::kRelu:
      return y > zero ? one : zero;
    case Activation::kRelu6:
      return ((y > zero) & (y < Broadcast(C(6)))) ? one : zero;
    case Activation::kLeakyRelu:
      return y > zero ? one : Broadcast(C(kLeakySlope));
    case Activation::kElu:
      return y < zero ? y + one : one;
    case Activation::kSelu:
      return y < zero ? y + Broadcast(C(kSeluScale * kSeluAlpha))
                      : Broadcast(C(kSeluScale));
    case Activation::kSoftsign: {
      const V rest = one / (one + Abs(saved));
      return rest * rest;
    }
    case Activation::kSoftplus:
      return -Expm1Negative(-y);
    case Activation::kExponential:
      return y;
    case Activation::kSilu: {
      const V s = Sigmoid(saved);
      return s * Fma(SiluFactor(saved), one - s, one);
    }
    case Activation::kGelu: {
      const V density = ExpClamped(saved * saved * Broadcast(C(-0.5))) *
                        Broadcast(C(kInvSqrt2Pi));
      const V limit = Broadcast(ExpConstants<V>::kHighest);
      return Fma(Min(limit, Max(-limit, saved)), density, NormalCdf(saved));
    }
    case Activation::kLinear:
      break;
  }
  return one;
}

// Any function of the list, chosen at run time.
struct RuntimeFunction {
  Activation kind;

  ECORNN_INLINE bool keeps_argument() const {
    return kind == Activation::kSilu || kind == Activation::kGelu ||
           kind == Activation::kHardTanh || kind == Activation::kSoftsign;
  }
  template <class V>
  ECORNN_INLINE V Apply(V x) const {
    return ApplyActivation(kind, x);
  }
  template <class V>
  ECORNN_INLINE V Save(V x, V y) const {
    return keeps_argument() ? x : y;
  }
  template <class V>
  ECORNN_INLINE V Restore(V saved) const {
    return keeps_argument() ? ApplyActivation(kind, saved) : saved;
  }
  template <class V>
  ECORNN_INLINE V Slope(V saved, V y) const {
    return ActivationSlope(kind, saved, y);
  }
};

// What a cell applies: `candidate` to new content and to the output, `gate` to
// the gates (Keras: activation and recurrent_activation).
struct DefaultFunctions {
  static constexpr TanhFunction candidate{};
  static constexpr SigmoidFunction gate{};
};

struct RuntimeFunctions {
  RuntimeFunction candidate;
  RuntimeFunction gate;
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_ACTIVATION_MATH_H_
