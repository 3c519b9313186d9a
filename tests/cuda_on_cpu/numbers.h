// Storage types to and from what is computed in, as CUDA's conversions round:
// to nearest, ties to even. Written for this emulation alone, so that kernels
// are not judged by the CPU engine's own conversions.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_NUMBERS_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_NUMBERS_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace ecornn {
namespace emulation {

// What tensor cores take, a type apart from the arrays' as in CUDA.
struct HalfElement {
  uint16_t bits;
};
struct BFloat16Element {
  uint16_t bits;
};

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float FloatOf(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 31) return FloatOf(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) return FloatOf(sign | BitsOf(fraction * 0x1p-24f));
  return FloatOf(sign | (exponent + 112) << 23 | fraction << 13);
}

inline uint16_t HalfOfFloat(float x) {
  const uint16_t sign = BitsOf(x) >> 16 & 0x8000;
  const float magnitude = fabsf(x);
  if (magnitude != magnitude) return 0x7fff;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  // In units of the last bit that is kept; a carry runs into the exponent.
  const int biased = BitsOf(magnitude) >> 23;
  const int exponent = biased - 127 < -14 ? -14 : biased - 127;
  const float units = magnitude * FloatOf(uint32_t(127 + 10 - exponent) << 23);
  return sign | uint16_t((exponent + 14) * 1024 + int(nearbyintf(units)));
}

inline float FloatOfBFloat16(uint16_t bits) {
  return FloatOf(uint32_t(bits) << 16);
}

inline uint16_t BFloat16OfFloat(float x) {
  const uint32_t bits = BitsOf(x);
  if (x != x) return 0x7fff;
  const uint32_t upper = bits >> 16;
  const uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (upper & 1));
  return static_cast<uint16_t>(upper + up);
}

// cvt.rna.tf32.f32: to nearest, ties away from zero.
inline float RoundToTensorFloat32(float x) {
  if (!(fabsf(x) <= 0x1.fffffep127f)) return x;
  return FloatOf((BitsOf(x) + 0x1000) & 0xffffe000);
}
inline bool IsTensorFloat32(float x) {
  return x != x || (BitsOf(x) & 0x1fff) == 0;
}

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_NUMBERS_H_
