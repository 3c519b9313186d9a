// Products of bfloat16 by the processor's matrix registers (AMX: Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 1, chapter 18): eight
// of 16 rows of 64 bytes. One instruction adds 16 x 32 operands times 32 x 16
// weights to 16 x 16 sums.
//
// Operands lie 32 of the depth to a row, weights as everywhere in pairs: 16
// rows of a register hold 32 of the depth of one vector of units.
#ifndef TF_ECORNN_CC_RECURRENCE_MATRIX_REGISTERS_H_
#define TF_ECORNN_CC_RECURRENCE_MATRIX_REGISTERS_H_

#include "number.h"
#include "simd.h"

namespace ecornn {
namespace ECORNN_TARGET {
namespace matrix {

inline constexpr int kRows = 16;
inline constexpr int kDepth = 32;
inline constexpr int64_t kRowBytes = 64;

struct Configuration {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[8];
  uint8_t more_reserved[16];
  uint8_t rows[8];
  uint8_t even_more_reserved[8];
};
// In memory of its own: compilers see a read of the first bytes alone.
alignas(64) inline constexpr Configuration kAllRegisters = {
    1,  0,
    {}, {64, 64, 64, 64, 64, 64, 64, 64},
    {}, {16, 16, 16, 16, 16, 16, 16, 16},
    {}};

// Around a thread's use of the registers. In between the system saves 8 KiB
// more of a thread that it interrupts, so not for longer than needed.
ECORNN_INLINE void Begin() { _tile_loadconfig(&kAllRegisters); }
ECORNN_INLINE void End() { _tile_release(); }

// Compilers may not know that loads to registers read what was just written.
ECORNN_INLINE void FinishStores() { __asm__ volatile("" ::: "memory"); }

// Up to 16 rows of operands, to be loaded 32 of the depth at a time.
class Operands {
 public:
  // `rows`: where each of `count` begins, `offset` before what is wanted.
  Operands(const BFloat16* const* rows, int count, int64_t offset)
      : rows_(rows), count_(count), offset_(offset) {
    stride_ = count > 1 ? Distance(0) : 0;
    is_even_ = count == kRows;
    for (int r = 1; r + 1 < count; ++r) is_even_ &= Distance(r) == stride_;
    if (is_even_) return;
    for (int r = count; r < kRows; ++r) {
      __builtin_memset((void*)copy_[r], 0, kRowBytes);
    }
  }

  // Where 32 of the depth from k on lie, and how far apart their rows are.
  // Fewer rows, or such as are not evenly spaced, are copied.
  ECORNN_INLINE const void* At(int64_t k) {
    if (is_even_) return rows_[0] + offset_ + k;
    for (int r = 0; r < count_; ++r) {
      __builtin_memcpy((void*)copy_[r], rows_[r] + offset_ + k, kRowBytes);
    }
    FinishStores();
    return copy_;
  }
  ECORNN_INLINE int64_t stride() const {
    return is_even_ ? stride_ : kRowBytes;
  }

 private:
  int64_t Distance(int r) const {
    return reinterpret_cast<const char*>(rows_[r + 1]) -
           reinterpret_cast<const char*>(rows_[r]);
  }

  const BFloat16* const* rows_;
  const int count_;
  const int64_t offset_;
  bool is_even_;
  int64_t stride_;
  alignas(64) BFloat16 copy_[kRows][kDepth];
};

// Operands of which 32 of the depth lie side by side for all of `columns`.
struct Columns {
  const BFloat16* first;
  int64_t columns;

  ECORNN_INLINE const void* At(int64_t k) const { return first + k * columns; }
  ECORNN_INLINE int64_t stride() const { return kRowBytes; }
};

// Weights (depth / 2, vectors), whose rows lie `stride` bytes apart.
struct Panel {
  const BFloat16* first;
  int64_t stride;

  ECORNN_INLINE const char* At(int64_t k) const {
    return reinterpret_cast<const char*>(first) + k / 2 * stride;
  }
};

// Sums, whose rows lie `stride` bytes apart.
struct Sums {
  float* first;
  int64_t stride;

  ECORNN_INLINE char* Rows(int r) const {
    return reinterpret_cast<char*>(first) + r * stride;
  }
};

// In what follows registers 0 ... 3 hold sums, 4 and 5 operands, 6 and 7
// weights. Calls ahead(k) for each 32 of the depth.

// Sums (16, NV) vectors, of the panel's first NV, from what is there or, unless
// kAdds, from zero.
template <int NV, bool kAdds, class A, class F>
ECORNN_INLINE void MultiplyRows(A& a, int64_t depth, Panel panel, Sums sums,
                                const F& ahead) {
  char* c = sums.Rows(0);
  FinishStores();
  if constexpr (kAdds) {
    _tile_loadd(0, c, sums.stride);
    if constexpr (NV > 1) _tile_loadd(1, c + 64, sums.stride);
    if constexpr (NV > 2) _tile_loadd(2, c + 128, sums.stride);
    if constexpr (NV > 3) _tile_loadd(3, c + 192, sums.stride);
  } else {
    _tile_zero(0);
    if constexpr (NV > 1) _tile_zero(1);
    if constexpr (NV > 2) _tile_zero(2);
    if constexpr (NV > 3) _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kDepth) {
    const char* b = panel.At(k);
    _tile_loadd(4, a.At(k), a.stride());
    ahead(k);
    _tile_loadd(6, b, panel.stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (NV > 1) {
      _tile_loadd(7, b + 64, panel.stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (NV > 2) {
      _tile_loadd(6, b + 128, panel.stride);
      _tile_dpbf16ps(2, 4, 6);
    }
    if constexpr (NV > 3) {
      _tile_loadd(7, b + 192, panel.stride);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, c, sums.stride);
  if constexpr (NV > 1) _tile_stored(1, c + 64, sums.stride);
  if constexpr (NV > 2) _tile_stored(2, c + 128, sums.stride);
  if constexpr (NV > 3) _tile_stored(3, c + 192, sums.stride);
}

// Sums (32, NV) vectors from zero, NV <= 2: weights are loaded half as often.
template <int NV, class A, class F>
ECORNN_INLINE void MultiplyTwiceTheRows(A& a, A& more, int64_t depth,
                                        Panel panel, Sums sums,
                                        const F& ahead) {
  static_assert(NV <= 2);
  char* c = sums.Rows(0);
  char* d = sums.Rows(kRows);
  FinishStores();
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (NV > 1) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kDepth) {
    const char* b = panel.At(k);
    _tile_loadd(4, a.At(k), a.stride());
    _tile_loadd(5, more.At(k), more.stride());
    ahead(k);
    _tile_loadd(6, b, panel.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (NV > 1) {
      _tile_loadd(7, b + 64, panel.stride);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, sums.stride);
  _tile_stored(1, d, sums.stride);
  if constexpr (NV > 1) {
    _tile_stored(2, c + 64, sums.stride);
    _tile_stored(3, d + 64, sums.stride);
  }
}

}  // namespace matrix
}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_MATRIX_REGISTERS_H_
