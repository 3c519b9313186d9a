// exp, tanh and sigmoid on vectors; erf and log1p lane by lane.
//
// exp(x) = 2^n * exp(r) with n = round(x / ln 2), |r| <= ln(2) / 2 and ln 2
// split in two (Cody and Waite, "Software Manual for the Elementary
// Functions"); exp(r) - 1 = r + r^2 q(r), where q interpolates at Chebyshev
// nodes. Errors against correctly rounded values: exp and sigmoid under 2 units
// in the last place, tanh under 3, relative, down to the smallest argument.
// Infinite arguments give the limits, NaN gives NaN.
#ifndef TF_ECORNN_CC_RECURRENCE_VECTOR_MATH_H_
#define TF_ECORNN_CC_RECURRENCE_VECTOR_MATH_H_

#include "simd.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class V>
struct ExpConstants;

template <>
struct ExpConstants<VectorF> {
  static constexpr float kLowest = -87.0f;  // exp of it is a normal number
  static constexpr float kHighest = 88.0f;
  static constexpr float kSaturated = -20.0f;  // 1 - exp of it rounds to 1
  static constexpr float kInvLn2 = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440054690583e-4f;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
  static constexpr int kMantissa = 23;
  static constexpr int kBias = 127;
  static constexpr int kTerms = 6;
  static constexpr float kQ[kTerms] = {
      0.5000000013457727f,   0.16666666681614256f,  0.04166646500604005f,
      0.008333310934448869f, 0.001393364103198670f, 0.00019890980869750326f};
};

template <>
struct ExpConstants<VectorD> {
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
  static constexpr double kSaturated = -40.0;
  static constexpr double kInvLn2 = 1.44269504088896340736;
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int kMantissa = 52;
  static constexpr int kBias = 1023;
  static constexpr int kTerms = 11;
  static constexpr double kQ[kTerms] = {0.5,
                                        0.16666666666666670986,
                                        0.041666666666666669752,
                                        0.008333333333326140884,
                                        0.0013888888888883752417,
                                        0.00019841269874800491981,
                                        0.000024801587325533363819,
                                        2.7557255425746434282e-6,
                                        2.7557273661348636219e-7,
                                        2.5105206373957011116e-8,
                                        2.09146793765839351e-9};
};

// exp(x) as scale * (1 + rest): `rest` keeps its relative accuracy at x near 0.
template <class V>
struct ScaledExp {
  V scale;
  V rest;
};

template <class V>
ECORNN_INLINE ScaledExp<V> SplitExp(V x) {
  using K = ExpConstants<V>;
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  using Int = typename Simd<C>::Int;
  // Adding 1.5 * 2^mantissa leaves the rounded integer in the low bits.
  const V shifted = Fma(x, Broadcast(K::kInvLn2), Broadcast(K::kRounder));
  const V n = shifted - Broadcast(K::kRounder);
  V r = Fma(n, Broadcast(-K::kLn2High), x);
  r = Fma(n, Broadcast(-K::kLn2Low), r);
  V q = Broadcast(K::kQ[K::kTerms - 1]);
#pragma GCC unroll 16
  for (int i = K::kTerms - 2; i >= 0; --i) q = Fma(q, r, Broadcast(K::kQ[i]));
  const Bits exponent =
      ((Bits)shifted << K::kMantissa) + (Int(K::kBias) << K::kMantissa);
  return {(V)exponent, Fma(r * r, q, r)};
}

template <class V>
ECORNN_INLINE V ExpClamped(V x) {
  using K = ExpConstants<V>;
  x = Min(Broadcast(K::kHighest), Max(Broadcast(K::kLowest), x));
  const ScaledExp<V> e = SplitExp(x);
  return Fma(e.scale, e.rest, e.scale);
}

// exp with its limits: 0 below the normal range, infinity above.
template <class V>
ECORNN_INLINE V Exp(V x) {
  using K = ExpConstants<V>;
  // Two factors reach from the clamped range to overflow and underflow.
  const V half = x * Broadcast(typename ScalarOf<V>::Type(0.5));
  const V clamped =
      Min(Broadcast(K::kHighest), Max(Broadcast(K::kLowest), half));
  const ScaledExp<V> e = SplitExp(clamped);
  const V root = Fma(e.scale, e.rest, e.scale);
  const V direct = ExpClamped(x);
  const V ends = root * root;
  const auto inside =
      (x > Broadcast(K::kLowest)) & (x < Broadcast(K::kHighest));
  return inside ? direct : ends;
}

// exp(x) - 1 for x <= 0.
template <class V>
ECORNN_INLINE V Expm1Negative(V x) {
  using K = ExpConstants<V>;
  using C = typename ScalarOf<V>::Type;
  const ScaledExp<V> e = SplitExp(Max(Broadcast(K::kSaturated), x));
  return Fma(e.scale, e.rest, e.scale - Broadcast(C(1)));
}

template <class V>
ECORNN_INLINE V Abs(V x) {
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  return (V)((Bits)x & ~(Bits)Broadcast(C(-0.0)));
}

template <class V>
ECORNN_INLINE V CopySign(V magnitude, V sign) {
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  const Bits bit = (Bits)Broadcast(C(-0.0));
  return (V)(((Bits)magnitude & ~bit) | ((Bits)sign & bit));
}

template <class V>
ECORNN_INLINE V Sigmoid(V x) {
  using C = typename ScalarOf<V>::Type;
  return Reciprocal(Broadcast(C(1)) + ExpClamped(-x));
}

// tanh|x| = -m / (2 + m) with m = exp(-2|x|) - 1.
template <class V>
ECORNN_INLINE V Tanh(V x) {
  using C = typename ScalarOf<V>::Type;
  const V m = Expm1Negative(Broadcast(C(-2)) * Abs(x));
  return CopySign(m * Reciprocal(Broadcast(C(2)) + m), x);
}

ECORNN_INLINE float ScalarErf(float x) { return __builtin_erff(x); }
ECORNN_INLINE double ScalarErf(double x) { return __builtin_erf(x); }
ECORNN_INLINE float ScalarLog1p(float x) { return __builtin_log1pf(x); }
ECORNN_INLINE double ScalarLog1p(double x) { return __builtin_log1p(x); }

template <class V>
ECORNN_INLINE V Erf(V x) {
  using C = typename ScalarOf<V>::Type;
  for (int i = 0; i < Simd<C>::kLanes; ++i) x[i] = ScalarErf(x[i]);
  return x;
}

template <class V>
ECORNN_INLINE V Log1p(V x) {
  using C = typename ScalarOf<V>::Type;
  for (int i = 0; i < Simd<C>::kLanes; ++i) x[i] = ScalarLog1p(x[i]);
  return x;
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_VECTOR_MATH_H_
