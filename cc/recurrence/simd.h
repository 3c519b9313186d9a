// Vectors of the widest registers that the translation unit is compiled for:
// 16 floats with AVX-512, 8 with AVX2, else 4. Everything lies in the target's
// own namespace, so that no linker can mix code of two instruction sets.
//
// Products and sums round as written: the units are compiled without
// contraction, and Fma() is the only fused operation.
#ifndef TF_ECORNN_CC_RECURRENCE_SIMD_H_
#define TF_ECORNN_CC_RECURRENCE_SIMD_H_

#include <stdint.h>

#include "target.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ecornn {
namespace ECORNN_TARGET {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

typedef float VectorF __attribute__((vector_size(kVectorBytes)));
typedef double VectorD __attribute__((vector_size(kVectorBytes)));
typedef int32_t VectorI32 __attribute__((vector_size(kVectorBytes)));
typedef int64_t VectorI64 __attribute__((vector_size(kVectorBytes)));

// What belongs to a scalar type: Vector, the integer vector of its bits, lanes.
template <class C>
struct Simd;

template <>
struct Simd<float> {
  using Vector = VectorF;
  using Bits = VectorI32;
  using Int = int32_t;
  static constexpr int kLanes = kVectorBytes / 4;
};

template <>
struct Simd<double> {
  using Vector = VectorD;
  using Bits = VectorI64;
  using Int = int64_t;
  static constexpr int kLanes = kVectorBytes / 8;
};

template <class V>
struct ScalarOf;
template <>
struct ScalarOf<VectorF> {
  using Type = float;
};
template <>
struct ScalarOf<VectorD> {
  using Type = double;
};

#if defined(__AVX512F__)

ECORNN_INLINE VectorF Fma(VectorF a, VectorF b, VectorF c) {
  return (VectorF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
ECORNN_INLINE VectorD Fma(VectorD a, VectorD b, VectorD c) {
  return (VectorD)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
ECORNN_INLINE VectorF Broadcast(float x) { return (VectorF)_mm512_set1_ps(x); }
ECORNN_INLINE VectorD Broadcast(double x) { return (VectorD)_mm512_set1_pd(x); }

// GCC's unmasked forms of some intrinsics read an undefined register, which it
// then warns of; with every lane chosen the masked ones are the same
// instruction.
inline constexpr __mmask16 kAll32 = 0xffff;
inline constexpr __mmask8 kAll64 = 0xff;

// max(a, b) and min(a, b) give b where either is NaN.
ECORNN_INLINE VectorF Max(VectorF a, VectorF b) {
  return (VectorF)_mm512_maskz_max_ps(kAll32, (__m512)a, (__m512)b);
}
ECORNN_INLINE VectorF Min(VectorF a, VectorF b) {
  return (VectorF)_mm512_maskz_min_ps(kAll32, (__m512)a, (__m512)b);
}
ECORNN_INLINE VectorD Max(VectorD a, VectorD b) {
  return (VectorD)_mm512_maskz_max_pd(kAll64, (__m512d)a, (__m512d)b);
}
ECORNN_INLINE VectorD Min(VectorD a, VectorD b) {
  return (VectorD)_mm512_maskz_min_pd(kAll64, (__m512d)a, (__m512d)b);
}

// The first n lanes from memory, zero in the others; nothing beyond is read.
ECORNN_INLINE VectorF LoadFirst(const float* p, int n) {
  return (VectorF)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
ECORNN_INLINE VectorD LoadFirst(const double* p, int n) {
  return (VectorD)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}
ECORNN_INLINE void StoreFirst(float* p, VectorF v, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
ECORNN_INLINE void StoreFirst(double* p, VectorD v, int n) {
  _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}

// 1 / d for d >= 1/2 to within one unit in the last place.
ECORNN_INLINE VectorF Reciprocal(VectorF d) {
  const __m512 estimate = _mm512_maskz_rcp14_ps(kAll32, (__m512)d);
  const __m512 error =
      _mm512_fnmadd_ps((__m512)d, estimate, _mm512_set1_ps(1.0f));
  return (VectorF)_mm512_fmadd_ps(estimate, error, estimate);
}

#elif defined(__AVX2__)

ECORNN_INLINE VectorF Fma(VectorF a, VectorF b, VectorF c) {
  return (VectorF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
ECORNN_INLINE VectorD Fma(VectorD a, VectorD b, VectorD c) {
  return (VectorD)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
ECORNN_INLINE VectorF Broadcast(float x) { return (VectorF)_mm256_set1_ps(x); }
ECORNN_INLINE VectorD Broadcast(double x) { return (VectorD)_mm256_set1_pd(x); }

ECORNN_INLINE VectorF Max(VectorF a, VectorF b) {
  return (VectorF)_mm256_max_ps((__m256)a, (__m256)b);
}
ECORNN_INLINE VectorF Min(VectorF a, VectorF b) {
  return (VectorF)_mm256_min_ps((__m256)a, (__m256)b);
}
ECORNN_INLINE VectorD Max(VectorD a, VectorD b) {
  return (VectorD)_mm256_max_pd((__m256d)a, (__m256d)b);
}
ECORNN_INLINE VectorD Min(VectorD a, VectorD b) {
  return (VectorD)_mm256_min_pd((__m256d)a, (__m256d)b);
}

ECORNN_INLINE __m256i FirstLanes32(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ECORNN_INLINE __m256i FirstLanes64(int n) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n),
                            _mm256_setr_epi64x(0, 1, 2, 3));
}
ECORNN_INLINE VectorF LoadFirst(const float* p, int n) {
  return (VectorF)_mm256_maskload_ps(p, FirstLanes32(n));
}
ECORNN_INLINE VectorD LoadFirst(const double* p, int n) {
  return (VectorD)_mm256_maskload_pd(p, FirstLanes64(n));
}
ECORNN_INLINE void StoreFirst(float* p, VectorF v, int n) {
  _mm256_maskstore_ps(p, FirstLanes32(n), (__m256)v);
}
ECORNN_INLINE void StoreFirst(double* p, VectorD v, int n) {
  _mm256_maskstore_pd(p, FirstLanes64(n), (__m256d)v);
}
ECORNN_INLINE VectorF Reciprocal(VectorF d) { return 1.0f / d; }

#else

template <class V>
ECORNN_INLINE V Fma(V a, V b, V c) {
  return a * b + c;
}
ECORNN_INLINE VectorF Broadcast(float x) { return x - VectorF{}; }
ECORNN_INLINE VectorD Broadcast(double x) { return x - VectorD{}; }
template <class V>
ECORNN_INLINE V Max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
ECORNN_INLINE V Min(V a, V b) {
  return a < b ? a : b;
}
ECORNN_INLINE VectorF LoadFirst(const float* p, int n) {
  VectorF v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
ECORNN_INLINE VectorD LoadFirst(const double* p, int n) {
  VectorD v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
ECORNN_INLINE void StoreFirst(float* p, VectorF v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
ECORNN_INLINE void StoreFirst(double* p, VectorD v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
ECORNN_INLINE VectorF Reciprocal(VectorF d) { return 1.0f / d; }

#endif

ECORNN_INLINE VectorD Reciprocal(VectorD d) { return 1.0 / d; }

ECORNN_INLINE VectorF Load(const float* p) {
  VectorF v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
ECORNN_INLINE VectorD Load(const double* p) {
  VectorD v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
ECORNN_INLINE void Store(float* p, VectorF v) {
  __builtin_memcpy(p, &v, sizeof(v));
}
ECORNN_INLINE void Store(double* p, VectorD v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

// Whether a vector is a whole line, so that a store need not fetch it first.
inline constexpr bool kVectorsAreLines = kVectorBytes == 64;

// Stores a whole, aligned line past the caches. Such stores are in no order
// with others until FinishStreaming().
#if defined(__AVX512F__)
ECORNN_INLINE void Stream(float* p, VectorF v) {
  _mm512_stream_ps(p, (__m512)v);
}
ECORNN_INLINE void Stream(double* p, VectorD v) {
  _mm512_stream_pd(p, (__m512d)v);
}
ECORNN_INLINE void FinishStreaming() { _mm_sfence(); }
#else
ECORNN_INLINE void FinishStreaming() {}
#endif

ECORNN_INLINE void PrefetchRead(const void* p) { __builtin_prefetch(p, 0); }
ECORNN_INLINE void PrefetchWrite(const void* p) { __builtin_prefetch(p, 1); }

// The lines of an array, as far as the second-level cache.
template <class T>
ECORNN_INLINE void PrefetchLines(const T* p, int64_t count) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_SIMD_H_
