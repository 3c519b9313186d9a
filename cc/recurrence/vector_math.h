// exp, tanh and sigmoid on vectors; erf and log1p lane by lane.
//
// exp(x) = 2^n * exp(r) with n = round(x / ln 2), |r| <= ln(2) / 2 and ln 2
// split in two (Cody and Waite, "Software Manual for the Elementary
// Functions"); exp(r) - 1 = r + r^2 q(r), where q is the polynomial of least
// error in r^2 q (Remez), summed in pairs (Estrin), a short chain of dependent
// operations. Errors against correctly rounded values: exp and sigmoid under 2
// units in the last place, tanh under 3, relative, down to the smallest
// argument. Infinite arguments give the limits, NaN gives NaN.
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
  static constexpr float kLn2 = 0.693147180559945309f;
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440054690583e-4f;
  static constexpr int kMantissa = 23;
  static constexpr float kRounder = 12582912.0f + 127;  // 1.5 * 2^23 and bias
  static constexpr int kTerms = 5;
  static constexpr float kQ[kTerms] = {
      0.50000000927846163f, 0.16666519767013603f, 0.041666210197798352f,
      0.0083688178213299344f, 0.0013950299962734667f};
};

template <>
struct ExpConstants<VectorD> {
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
  static constexpr double kSaturated = -40.0;
  static constexpr double kInvLn2 = 1.44269504088896340736;
  static constexpr double kLn2 = 0.693147180559945309417;
  static constexpr double kLn2High = 6.93145751953125e-1;
  static constexpr double kLn2Low = 1.42860682030941723212e-6;
  static constexpr int kMantissa = 52;
  static constexpr double kRounder = 6755399441055744.0 + 1023;
  static constexpr int kTerms = 10;
  static constexpr double kQ[kTerms] = {
      0.500000000000001097,       0.16666666666666696869,
      0.041666666666527159298,    0.008333333333308314558,
      0.0013888888944444721991,   0.00019841269915412472045,
      0.000024801492234171101023, 2.7557217783983974587e-6,
      2.7630562423664369052e-7,   2.5117457987889540324e-8};
};

// exp(kFactor * x) as scale * (1 + kFactor * part): `part` keeps its relative
// accuracy at x near 0.
template <class V>
struct ScaledExp {
  V scale;
  V part;
};

// kFactor is 1, -1 or -2: constants take it up and stay exact.
// kWhole: of a result that counts by itself; what only serves to be taken from
// 1 does with ln 2 in one piece.
template <int kFactor, bool kWhole, class V>
ECORNN_INLINE ScaledExp<V> SplitExp(V x) {
  using K = ExpConstants<V>;
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  // Adding 1.5 * 2^mantissa leaves the rounded integer in the low bits.
  const V shifted =
      Fma(x, Broadcast(kFactor * K::kInvLn2), Broadcast(K::kRounder));
  const V n = shifted - Broadcast(K::kRounder);
  V r = x;
  if (kWhole) {
    r = Fma(n, Broadcast(-K::kLn2High / kFactor), r);
    r = Fma(n, Broadcast(-K::kLn2Low / kFactor), r);
  } else {
    r = Fma(n, Broadcast(-K::kLn2 / kFactor), r);
  }
  // With r as it is, x - n ln 2 / kFactor: exp(kFactor r) - 1 is
  // kFactor (r + r^2 d(r)), where kFactor^(i + 1) makes the terms of q those
  // of d.
  const auto term = [](int i) {
    C power = 1;
    for (int j = 0; j <= i; ++j) power *= kFactor;
    return Broadcast(C(K::kQ[i] * power));
  };
  const V square = r * r;
  constexpr int kLastPair = (K::kTerms - 1) / 2 * 2;
  V d = K::kTerms % 2 == 1 ? term(kLastPair)
                           : Fma(term(kLastPair + 1), r, term(kLastPair));
#pragma GCC unroll 16
  for (int i = kLastPair - 2; i >= 0; i -= 2) {
    d = Fma(d, square, Fma(term(i + 1), r, term(i)));
  }
  return {(V)((Bits)shifted << K::kMantissa), Fma(square, d, r)};
}

template <class V>
ECORNN_INLINE V Clamp(V low, V x, V high) {
  return Min(high, Max(low, x));
}

template <class V>
ECORNN_INLINE V ExpClamped(V x) {
  using K = ExpConstants<V>;
  const ScaledExp<V> e = SplitExp<1, true>(
      Clamp(Broadcast(K::kLowest), x, Broadcast(K::kHighest)));
  return Fma(e.scale, e.part, e.scale);
}

// exp with its limits: 0 below the normal range, infinity above.
template <class V>
ECORNN_INLINE V Exp(V x) {
  using K = ExpConstants<V>;
  // Two factors reach from the clamped range to overflow and underflow.
  const V half = x * Broadcast(typename ScalarOf<V>::Type(0.5));
  const V root = ExpClamped(half);
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
  const ScaledExp<V> e = SplitExp<1, false>(Max(Broadcast(K::kSaturated), x));
  return Fma(e.scale, e.part, e.scale - Broadcast(C(1)));
}

template <class V>
ECORNN_INLINE V Abs(V x) {
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  return (V)((Bits)x & ~(Bits)Broadcast(C(-0.0)));
}

// 1 / (1 + exp(-x)). The sum rounds once: the 1 comes last.
template <class V>
ECORNN_INLINE V Sigmoid(V x) {
  using K = ExpConstants<V>;
  using C = typename ScalarOf<V>::Type;
  const ScaledExp<V> e = SplitExp<-1, true>(
      Clamp(Broadcast(-K::kHighest), x, Broadcast(-K::kLowest)));
  return Reciprocal(Broadcast(C(1)) + Fma(-e.scale, e.part, e.scale));
}

// tanh|x| = m / (1 - m) with m = (1 - exp(-2|x|)) / 2, at most 1/2.
template <class V>
ECORNN_INLINE V Tanh(V x) {
  using K = ExpConstants<V>;
  using C = typename ScalarOf<V>::Type;
  using Bits = typename Simd<C>::Bits;
  const Bits sign = (Bits)x & (Bits)Broadcast(C(-0.0));
  const V half = Broadcast(C(0.5));
  const ScaledExp<V> e =
      SplitExp<-2, false>(Min(Broadcast(K::kSaturated / -2), Abs(x)));
  const V m = Fma(e.scale, e.part, Fma(-half, e.scale, half));
  return (V)((Bits)(m * Reciprocal(Broadcast(C(1)) - m)) | sign);
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
