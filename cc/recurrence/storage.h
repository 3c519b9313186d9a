// Vectors to and from memory of any storage type. Narrow types round to
// nearest, ties to even; what is too large becomes infinite, so that loss
// scaling sees it.
#ifndef TF_ECORNN_CC_RECURRENCE_STORAGE_H_
#define TF_ECORNN_CC_RECURRENCE_STORAGE_H_

#include "number.h"
#include "simd.h"

namespace ecornn {
namespace ECORNN_TARGET {

// One number.
ECORNN_INLINE float Widen(float x) { return x; }
ECORNN_INLINE double Widen(double x) { return x; }

ECORNN_INLINE float FloatOfBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
ECORNN_INLINE uint32_t BitsOfFloat(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

ECORNN_INLINE float Widen(BFloat16 x) {
  return FloatOfBits(uint32_t(x.bits) << 16);
}

ECORNN_INLINE float Widen(Half x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000) << 16;
  const uint32_t rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) {  // infinity, or NaN with its payload
    return FloatOfBits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  }
  // Scaling by 2^112 moves the exponent's bias from 15 to 127 and is exact, but
  // denormals may be flushed here: those are integers times 2^-24.
  const float magnitude = rest < 0x400
                              ? float(rest) * 0x1p-24f
                              : FloatOfBits((rest << 13) + (112u << 23));
  return FloatOfBits(sign | BitsOfFloat(magnitude));
}

ECORNN_INLINE void Narrow(float x, float* to) { *to = x; }
ECORNN_INLINE void Narrow(double x, double* to) { *to = x; }

ECORNN_INLINE void Narrow(float x, BFloat16* to) {
  const uint32_t bits = BitsOfFloat(x);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  to->bits = uint16_t(nan ? bits >> 16 | 0x40 : rounded >> 16);
}

ECORNN_INLINE void Narrow(float x, Half* to) {
  const uint32_t bits = BitsOfFloat(x);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7fffffff;
  uint32_t narrow;
  if (rest > 0x7f800000) {
    narrow = 0x7e00;
  } else if (rest >= 0x477ff000) {  // rounds to 65536 or more
    narrow = 0x7c00;
  } else if (rest < 0x38800000) {  // below 2^-14: a multiple of 2^-24
    // Adding 0.5 aligns the last bit kept with the last bit of the sum.
    narrow = BitsOfFloat(FloatOfBits(rest) + 0.5f) - BitsOfFloat(0.5f);
  } else {
    narrow = (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13;
  }
  to->bits = uint16_t(sign | narrow);
}

// n <= kLanes numbers; nothing beyond is touched, lanes beyond are zero.
template <class S>
ECORNN_INLINE VectorF LoadFirstNarrow(const S* p, int n) {
  VectorF v = {};
  for (int i = 0; i < n; ++i) v[i] = Widen(p[i]);
  return v;
}
template <class S>
ECORNN_INLINE void StoreFirstNarrow(S* p, VectorF v, int n) {
  for (int i = 0; i < n; ++i) Narrow(v[i], p + i);
}

#if defined(__AVX512F__)

ECORNN_INLINE VectorF LoadFirst(const Half* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
  return (VectorF)_mm512_maskz_cvtph_ps(kAll32, bits);
}
ECORNN_INLINE VectorF Load(const Half* p) {
  return (VectorF)_mm512_maskz_cvtph_ps(kAll32,
                                        _mm256_loadu_si256((const __m256i*)p));
}
ECORNN_INLINE void StoreFirst(Half* p, VectorF v, int n) {
  const __m256i bits = _mm512_maskz_cvtps_ph(kAll32, (__m512)v, 0);
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), bits);
}
ECORNN_INLINE void Store(Half* p, VectorF v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtps_ph(kAll32, (__m512)v, 0));
}

ECORNN_INLINE VectorF WidenBFloat16(__m256i bits) {
  return (VectorF)_mm512_maskz_slli_epi32(
      kAll32, _mm512_maskz_cvtepu16_epi32(kAll32, bits), 16);
}
#if defined(__AVX512BF16__)
// Denormals become zero.
ECORNN_INLINE __m256i NarrowBFloat16(VectorF v) {
  return (__m256i)_mm512_maskz_cvtneps_pbh(kAll32, (__m512)v);
}
#else
ECORNN_INLINE __m256i NarrowBFloat16(VectorF v) {
  const VectorI32 bits = (VectorI32)v;
  const VectorI32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const VectorI32 quiet = bits | 0x400000;
  const VectorI32 chosen = v == v ? rounded : quiet;
  return _mm512_maskz_cvtepi32_epi16(
      kAll32, _mm512_maskz_srli_epi32(kAll32, (__m512i)chosen, 16));
}
#endif
ECORNN_INLINE VectorF LoadFirst(const BFloat16* p, int n) {
  return WidenBFloat16(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}
ECORNN_INLINE VectorF Load(const BFloat16* p) {
  return WidenBFloat16(_mm256_loadu_si256((const __m256i*)p));
}
ECORNN_INLINE void StoreFirst(BFloat16* p, VectorF v, int n) {
  _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), NarrowBFloat16(v));
}
ECORNN_INLINE void Store(BFloat16* p, VectorF v) {
  _mm256_storeu_si256((__m256i*)p, NarrowBFloat16(v));
}

#else

#if defined(__AVX2__) && defined(__F16C__)
ECORNN_INLINE VectorF Load(const Half* p) {
  return (VectorF)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
ECORNN_INLINE void Store(Half* p, VectorF v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, 0));
}
#else
ECORNN_INLINE VectorF Load(const Half* p) {
  return LoadFirstNarrow(p, Simd<float>::kLanes);
}
ECORNN_INLINE void Store(Half* p, VectorF v) {
  StoreFirstNarrow(p, v, Simd<float>::kLanes);
}
#endif

#if defined(__AVX2__)
ECORNN_INLINE VectorF Load(const BFloat16* p) {
  const __m256i bits =
      _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return (VectorF)_mm256_slli_epi32(bits, 16);
}
ECORNN_INLINE void Store(BFloat16* p, VectorF v) {
  const VectorI32 bits = (VectorI32)v;
  const VectorI32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const VectorI32 quiet = bits | 0x400000;
  const __m256i chosen =
      _mm256_srli_epi32((__m256i)(v == v ? rounded : quiet), 16);
  _mm_storeu_si128((__m128i*)p,
                   _mm_packus_epi32(_mm256_castsi256_si128(chosen),
                                    _mm256_extracti128_si256(chosen, 1)));
}
#else
ECORNN_INLINE VectorF Load(const BFloat16* p) {
  return LoadFirstNarrow(p, Simd<float>::kLanes);
}
ECORNN_INLINE void Store(BFloat16* p, VectorF v) {
  StoreFirstNarrow(p, v, Simd<float>::kLanes);
}
#endif

ECORNN_INLINE VectorF LoadFirst(const Half* p, int n) {
  return LoadFirstNarrow(p, n);
}
ECORNN_INLINE void StoreFirst(Half* p, VectorF v, int n) {
  StoreFirstNarrow(p, v, n);
}
ECORNN_INLINE VectorF LoadFirst(const BFloat16* p, int n) {
  return LoadFirstNarrow(p, n);
}
ECORNN_INLINE void StoreFirst(BFloat16* p, VectorF v, int n) {
  StoreFirstNarrow(p, v, n);
}

#endif

// The lanes of a row that one vector covers: all of them, or the first `count`
// of the row's last piece.
struct FullLanes {
  template <class S>
  ECORNN_INLINE auto Load(const S* p) const {
    return ECORNN_TARGET::Load(p);
  }
  template <class S, class V>
  ECORNN_INLINE void Store(S* p, V v) const {
    ECORNN_TARGET::Store(p, v);
  }
};

struct FirstLanes {
  int count;
  template <class S>
  ECORNN_INLINE auto Load(const S* p) const {
    return LoadFirst(p, count);
  }
  template <class S, class V>
  ECORNN_INLINE void Store(S* p, V v) const {
    StoreFirst(p, v, count);
  }
};

// Rows of numbers from one type to another, of equal length.
template <class A, class B>
ECORNN_INLINE void CopyRow(A* to, const B* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) Narrow(Widen(from[i]), to + i);
}
template <class A>
ECORNN_INLINE void ZeroRow(A* to, int64_t count) {
  __builtin_memset((void*)to, 0, count * sizeof(A));
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_STORAGE_H_
