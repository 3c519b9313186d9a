// The platform of an NVIDIA GPU: thin names for CUDA's own.
#ifndef TF_ECORNN_CUDA_NVIDIA_H_
#define TF_ECORNN_CUDA_NVIDIA_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <stdint.h>

#include "../cc/recurrence/number.h"
#include "device.h"
#include "sync_point.h"

#define ECORNN_KERNEL __global__ void
// At most so many threads a block, and at least so many blocks a
// multiprocessor.
#define ECORNN_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define ECORNN_DEVICE __device__ __forceinline__
#define ECORNN_DEVICE_CALL __device__ __noinline__
#define ECORNN_UNROLL _Pragma("unroll")
#define ECORNN_NO_UNROLL _Pragma("unroll 1")

// Whether the code that is being compiled may use the tensor cores' bfloat16
// and TF32 (sm_80).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define ECORNN_HAS_AMPERE_TILES 0
#else
#define ECORNN_HAS_AMPERE_TILES 1
#endif

namespace ecornn {
namespace cuda {

namespace wmma = nvcuda::wmma;
using HalfElement = __half;
using BFloat16Element = __nv_bfloat16;

// --- Memory -------------------------------------------------------------

// A pointer into any memory of the device. The emulation's knows its bounds.
template <class T>
using Pointer = T*;

// Of `count` elements of global memory: a kernel's argument.
template <class T>
ECORNN_DEVICE Pointer<T> Global(T* data, int64_t count) {
  (void)count;
  return data;
}

// Of `count` elements of the block's dynamic shared memory, from a byte on that
// is a multiple of 16.
template <class T>
ECORNN_DEVICE Pointer<T> Shared(size_t offset, int64_t count) {
  extern __shared__ __align__(128) unsigned char ecornn_shared[];
  (void)count;
  return reinterpret_cast<T*>(ecornn_shared + offset);
}

// The same memory as another type of the same size.
template <class To, class From>
ECORNN_DEVICE Pointer<To> As(Pointer<From> from) {
  return reinterpret_cast<To*>(from);
}

struct alignas(16) Vector16 {
  uint32_t words[4];
};

// 16 aligned bytes. The L2 form passes by the multiprocessor's own cache, which
// may hold what another one has replaced.
template <class T>
ECORNN_DEVICE Vector16 LoadVectorL2(Pointer<const T> from) {
  const uint4 v = __ldcg(reinterpret_cast<const uint4*>(from));
  return {{v.x, v.y, v.z, v.w}};
}
template <class T>
ECORNN_DEVICE Vector16 LoadVector(Pointer<const T> from) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
template <class T>
ECORNN_DEVICE void StoreVector(Pointer<T> to, Vector16 v) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
}

// --- Threads ------------------------------------------------------------

ECORNN_DEVICE int ThreadIndex() { return threadIdx.x; }
ECORNN_DEVICE int64_t BlockIndex() { return blockIdx.x; }
ECORNN_DEVICE int ThreadCount() { return blockDim.x; }
ECORNN_DEVICE int64_t BlockCount() { return gridDim.x; }

ECORNN_DEVICE void BlockBarrier(SyncPoint) { __syncthreads(); }
// Whether any of the block's threads says so. A barrier, too.
ECORNN_DEVICE bool BlockAny(bool here, SyncPoint) {
  return __syncthreads_or(here) != 0;
}
ECORNN_DEVICE void WarpBarrier(SyncPoint) { __syncwarp(); }
ECORNN_DEVICE void DeviceFence(SyncPoint) { __threadfence(); }

ECORNN_DEVICE void AddToCounter(Pointer<unsigned> counter, unsigned n) {
  atomicAdd(counter, n);
}
ECORNN_DEVICE unsigned ReadCounter(Pointer<unsigned> counter) {
  return *reinterpret_cast<volatile unsigned*>(counter);
}

// --- Numbers ------------------------------------------------------------

ECORNN_DEVICE float Widen(float x) { return x; }
ECORNN_DEVICE double Widen(double x) { return x; }
ECORNN_DEVICE float Widen(Half x) {
  return __half2float(__ushort_as_half(x.bits));
}
ECORNN_DEVICE float Widen(BFloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
template <class S>
ECORNN_DEVICE S Narrow(ComputeType<S> x);
template <>
ECORNN_DEVICE float Narrow<float>(float x) {
  return x;
}
template <>
ECORNN_DEVICE double Narrow<double>(double x) {
  return x;
}
template <>
ECORNN_DEVICE Half Narrow<Half>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
ECORNN_DEVICE BFloat16 Narrow<BFloat16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
// float32 rounded to TF32's 10 bits of mantissa.
ECORNN_DEVICE float RoundToTensorFloat32(float x) {
#if ECORNN_HAS_AMPERE_TILES
  return wmma::__float_to_tf32(x);
#else
  return x;  // in kernels that no plan runs there
#endif
}

// --- The host's side ----------------------------------------------------

struct LaunchShape {
  int64_t blocks;
  int threads;
  size_t shared_bytes;
  bool cooperative;  // all blocks run at the same time
};

// The working memory of the launches that follow; the emulation watches it.
inline void BeginScratch(void* data, size_t bytes) {
  (void)data;
  (void)bytes;
}

template <class... P>
Error AllowShared(void (*kernel)(P...), size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// Blocks that fit one multiprocessor at a time.
template <class... P>
Error Occupancy(void (*kernel)(P...), int threads, size_t shared_bytes,
                int* blocks) {
  const Error error = AllowShared(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}

template <class... P>
Error Launch(void (*kernel)(P...), const LaunchShape& shape, Stream stream,
             const P&... arguments) {
  const Error error = AllowShared(kernel, shape.shared_bytes);
  if (error != cudaSuccess) return error;
  void* pointers[] = {const_cast<P*>(&arguments)...};
  const dim3 grid(static_cast<unsigned>(shape.blocks));
  const dim3 block(static_cast<unsigned>(shape.threads));
  const auto function = reinterpret_cast<const void*>(kernel);
  const auto where = static_cast<cudaStream_t>(stream);
  return shape.cooperative
             ? cudaLaunchCooperativeKernel(function, grid, block, pointers,
                                           shape.shared_bytes, where)
             : cudaLaunchKernel(function, grid, block, pointers,
                                shape.shared_bytes, where);
}

inline Error ZeroMemory(void* data, size_t bytes, Stream stream) {
  return cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream));
}

// Makes a device current for this thread while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || before_ == ordinal) return;
    error_ = cudaSetDevice(ordinal);
    changed_ = error_ == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  Error error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  Error error_;
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_NVIDIA_H_
