// The functions of vector_math.h for one number: what a cell's arithmetic is
// made of on a GPU.
#ifndef TF_ECORNN_CUDA_SCALAR_MATH_H_
#define TF_ECORNN_CUDA_SCALAR_MATH_H_

#define ECORNN_TARGET cuda

#include <math.h>

#include "platform.h"

namespace ecornn {
namespace cuda {

template <class V>
struct ScalarOf {
  using Type = V;
};

// Arguments that exp is clamped to: a normal number on either side.
template <class V>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLowest = -87.0f;
  static constexpr float kHighest = 88.0f;
};
template <>
struct ExpConstants<double> {
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
};

ECORNN_DEVICE float Broadcast(float x) { return x; }
ECORNN_DEVICE double Broadcast(double x) { return x; }

ECORNN_DEVICE float Fma(float a, float b, float c) { return ::fmaf(a, b, c); }
ECORNN_DEVICE double Fma(double a, double b, double c) {
  return ::fma(a, b, c);
}

// max(a, b) and min(a, b) give b where either is NaN.
template <class V>
ECORNN_DEVICE V Max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
ECORNN_DEVICE V Min(V a, V b) {
  return a < b ? a : b;
}

ECORNN_DEVICE float Abs(float x) { return ::fabsf(x); }
ECORNN_DEVICE double Abs(double x) { return ::fabs(x); }
ECORNN_DEVICE float Exp(float x) { return ::expf(x); }
ECORNN_DEVICE double Exp(double x) { return ::exp(x); }
ECORNN_DEVICE float Expm1Negative(float x) { return ::expm1f(x); }
ECORNN_DEVICE double Expm1Negative(double x) { return ::expm1(x); }
ECORNN_DEVICE float Tanh(float x) { return ::tanhf(x); }
ECORNN_DEVICE double Tanh(double x) { return ::tanh(x); }
ECORNN_DEVICE float Erf(float x) { return ::erff(x); }
ECORNN_DEVICE double Erf(double x) { return ::erf(x); }
ECORNN_DEVICE float Log1p(float x) { return ::log1pf(x); }
ECORNN_DEVICE double Log1p(double x) { return ::log1p(x); }

template <class V>
ECORNN_DEVICE V ExpClamped(V x) {
  using K = ExpConstants<V>;
  return Exp(Min(V(K::kHighest), Max(V(K::kLowest), x)));
}

template <class V>
ECORNN_DEVICE V Sigmoid(V x) {
  return V(1) / (V(1) + ExpClamped(-x));
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_SCALAR_MATH_H_
