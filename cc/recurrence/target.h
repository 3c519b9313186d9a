// How a function is compiled for its target: a vector unit of the CPU, or a
// GPU.
#ifndef TF_ECORNN_CC_RECURRENCE_TARGET_H_
#define TF_ECORNN_CC_RECURRENCE_TARGET_H_

#ifndef ECORNN_TARGET
#error "define ECORNN_TARGET, the namespace of this target, first"
#endif

#ifdef __CUDACC__
#define ECORNN_INLINE __device__ __forceinline__
#define ECORNN_OUTLINE __device__ __noinline__
#else
#define ECORNN_INLINE inline __attribute__((always_inline))
#define ECORNN_OUTLINE __attribute__((noinline))
#endif

#endif  // TF_ECORNN_CC_RECURRENCE_TARGET_H_
