// The activation functions by the standard library: value and slope at x.
//
// F is double for the reference and long double where the engine's functions
// are measured. At kinks the slope is the one TensorFlow uses.
#ifndef TF_ECORNN_TESTS_ENGINE_SCALAR_ACTIVATIONS_H_
#define TF_ECORNN_TESTS_ENGINE_SCALAR_ACTIVATIONS_H_

#include <cmath>
#include <limits>

#include "../../cc/recurrence/activation.h"

namespace ecornn {
namespace test {

inline const char* NameOf(Activation kind) {
  return kActivationNames[static_cast<int>(kind)];
}

template <class F>
F Logistic(F x) {
  return F(1) / (F(1) + std::exp(-x));
}

template <class F>
F Clip(F x, F low, F high) {
  return x < low ? low : x > high ? high : x;  // NaN stays
}

template <class F>
F ActivationValue(Activation kind, F x) {
  const F selu_scale = F(1.0507009873554804934193349852946L);
  const F selu_alpha = F(1.6732632423543772848170429916717L);
  switch (kind) {
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return Logistic(x);
    case Activation::kHardSigmoid:
      return Clip(x + F(3), F(0), F(6)) / F(6);
    case Activation::kHardTanh:
      return Clip(x, F(-1), F(1));
    case Activation::kRelu:
      return x < F(0) ? F(0) : x;
    case Activation::kRelu6:
      return Clip(x, F(0), F(6));
    case Activation::kLeakyRelu:
      return x < F(0) ? F(0.2L) * x : x;
    case Activation::kElu:
      return x < F(0) ? std::expm1(x) : x;
    case Activation::kSelu:
      return selu_scale * (x < F(0) ? selu_alpha * std::expm1(x) : x);
    case Activation::kSoftsign:
      return x / (F(1) + std::abs(x));
    case Activation::kSoftplus:
      return x > F(0) ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case Activation::kExponential:
      return std::exp(x);
    case Activation::kLinear:
      return x;
    case Activation::kSilu:
      return x * Logistic(x);
    case Activation::kGelu:
      return x * std::erfc(-x / std::sqrt(F(2))) / F(2);
  }
  return std::numeric_limits<F>::quiet_NaN();
}

template <class F>
F ActivationSlope(Activation kind, F x) {
  const F selu_scale = F(1.0507009873554804934193349852946L);
  const F selu_alpha = F(1.6732632423543772848170429916717L);
  const F pi = std::acos(F(-1));
  switch (kind) {
    case Activation::kTanh: {
      const F c = std::cosh(x);
      return F(1) / (c * c);
    }
    case Activation::kSigmoid:
      return Logistic(x) * Logistic(-x);
    case Activation::kHardSigmoid:
      return x > F(-3) && x < F(3) ? F(1) / F(6) : F(0);
    case Activation::kHardTanh:
      return std::abs(x) <= F(1) ? F(1) : F(0);
    case Activation::kRelu:
      return x > F(0) ? F(1) : F(0);
    case Activation::kRelu6:
      return x > F(0) && x < F(6) ? F(1) : F(0);
    case Activation::kLeakyRelu:
      return x > F(0) ? F(1) : F(0.2L);
    case Activation::kElu:
      return x < F(0) ? std::exp(x) : F(1);
    case Activation::kSelu:
      return selu_scale * (x < F(0) ? selu_alpha * std::exp(x) : F(1));
    case Activation::kSoftsign:
      return F(1) / ((F(1) + std::abs(x)) * (F(1) + std::abs(x)));
    case Activation::kSoftplus:
      return Logistic(x);
    case Activation::kExponential:
      return std::exp(x);
    case Activation::kLinear:
      return F(1);
    case Activation::kSilu:
      return Logistic(x) * (F(1) + x * Logistic(-x));
    case Activation::kGelu:
      return std::erfc(-x / std::sqrt(F(2))) / F(2) +
             x * std::exp(-x * x / F(2)) / std::sqrt(F(2) * pi);
  }
  return std::numeric_limits<F>::quiet_NaN();
}

// Distance from x to the nearest point where the slope jumps. An exact hit does
// not count: it comes from zeros, which every precision computes alike, while a
// near miss may fall on the other side.
template <class F>
F KinkDistance(Activation kind, F x) {
  const auto gap = [x](F kink) {
    const F distance = std::abs(x - kink);
    return distance > F(0) ? distance : std::numeric_limits<F>::infinity();
  };
  switch (kind) {
    case Activation::kHardSigmoid:
      return std::fmin(gap(F(-3)), gap(F(3)));
    case Activation::kHardTanh:
      return std::fmin(gap(F(-1)), gap(F(1)));
    case Activation::kRelu6:
      return std::fmin(gap(F(0)), gap(F(6)));
    case Activation::kRelu:
    case Activation::kLeakyRelu:
    case Activation::kSelu:
      return gap(F(0));
    default:
      return std::numeric_limits<F>::infinity();
  }
}

inline bool HasKinks(Activation kind) {
  return std::isfinite(KinkDistance(kind, 0.5));
}

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_SCALAR_ACTIVATIONS_H_
