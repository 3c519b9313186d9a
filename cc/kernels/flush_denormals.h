// Denormal numbers cost a hundred cycles each and carry no information here.
#ifndef TF_ECORNN_CC_KERNELS_FLUSH_DENORMALS_H_
#define TF_ECORNN_CC_KERNELS_FLUSH_DENORMALS_H_

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ecornn {

// Reads and writes denormals as zero in this scope and restores the thread's
// state after it.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
#endif

  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  unsigned int saved_;
#endif
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_KERNELS_FLUSH_DENORMALS_H_
