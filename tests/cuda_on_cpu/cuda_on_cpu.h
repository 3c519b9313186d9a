// The platform of the kernels, emulated on the CPU: every name that
// cuda/nvidia.h gives them, by the emulation's parts.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_

#include <stddef.h>
#include <stdint.h>

#include "../../cc/recurrence/number.h"
#include "../../cuda/device.h"
#include "../../cuda/sync_point.h"
#include "host.h"
#include "host_memory.h"
#include "numbers.h"
#include "pointer.h"
#include "synchronise.h"
#include "tensor_core.h"

#define ECORNN_KERNEL void
#define ECORNN_BOUNDS(threads, blocks)
#define ECORNN_DEVICE inline
#define ECORNN_DEVICE_CALL __attribute__((noinline))
#define ECORNN_UNROLL
#define ECORNN_NO_UNROLL
#define ECORNN_HAS_AMPERE_TILES 1

namespace ecornn {
namespace cuda {

namespace wmma = emulation::wmma;
using emulation::BFloat16Element;
using emulation::HalfElement;
using emulation::Pointer;

// --- Memory -------------------------------------------------------------

template <class T>
Pointer<T> Global(T* data, int64_t count) {
  return emulation::MakeGlobal(data, count);
}
template <class T>
Pointer<T> Shared(size_t offset, int64_t count) {
  return emulation::MakeShared<T>(offset, count);
}
template <class To, class From>
Pointer<To> As(Pointer<From> from) {
  return emulation::Reinterpret<To>(from);
}

struct alignas(16) Vector16 {
  uint32_t words[4];
};

template <class T>
Vector16 LoadVectorL2(Pointer<const T> from) {
  return emulation::ReadVector<Vector16>(from, emulation::Through::kL2);
}
template <class T>
Vector16 LoadVector(Pointer<const T> from) {
  return emulation::ReadVector<Vector16>(from, emulation::Through::kOwnCache);
}
template <class T>
void StoreVector(Pointer<T> to, Vector16 v) {
  emulation::WriteVector(to, v);
}

// --- Threads ------------------------------------------------------------

inline int ThreadIndex() { return emulation::current_thread->index; }
inline int64_t BlockIndex() { return emulation::current_thread->block->index; }
inline int ThreadCount() { return emulation::running.request.threads; }
inline int64_t BlockCount() { return emulation::running.request.blocks; }

// The calls' own places in the source, for the text of a fault.
inline void BlockBarrier(SyncPoint point, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  emulation::BlockBarrier(
      {"BlockBarrier", static_cast<int>(point), file, line});
}
inline bool BlockAny(bool here, SyncPoint point,
                     const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  return emulation::BlockAny(here,
                             {"BlockAny", static_cast<int>(point), file, line});
}
inline void WarpBarrier(SyncPoint point, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  emulation::WarpBarrier({"WarpBarrier", static_cast<int>(point), file, line});
}
inline void DeviceFence(SyncPoint point, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  emulation::DeviceFence({"DeviceFence", static_cast<int>(point), file, line});
}

inline void AddToCounter(Pointer<unsigned> counter, unsigned n) {
  emulation::AddToCounter(emulation::CounterAt(counter), n);
}
inline unsigned ReadCounter(Pointer<unsigned> counter) {
  return emulation::ReadCounter(emulation::CounterAt(counter));
}

// --- Numbers ------------------------------------------------------------

inline float Widen(float x) { return x; }
inline double Widen(double x) { return x; }
inline float Widen(Half x) { return emulation::FloatOfHalf(x.bits); }
inline float Widen(BFloat16 x) { return emulation::FloatOfBFloat16(x.bits); }

template <class S>
S Narrow(ComputeType<S> x);
template <>
inline float Narrow<float>(float x) {
  return x;
}
template <>
inline double Narrow<double>(double x) {
  return x;
}
template <>
inline Half Narrow<Half>(float x) {
  return {emulation::HalfOfFloat(x)};
}
template <>
inline BFloat16 Narrow<BFloat16>(float x) {
  return {emulation::BFloat16OfFloat(x)};
}
using emulation::RoundToTensorFloat32;

// --- The host's side ----------------------------------------------------

struct LaunchShape {
  int64_t blocks;
  int threads;
  size_t shared_bytes;
  bool cooperative;
};

inline void BeginScratch(void* data, size_t bytes) {
  emulation::SetScratch(data, bytes);
}

template <class... P>
Error AllowShared(void (*)(P...), size_t bytes) {
  return emulation::CheckSharedBytes(bytes);
}

template <class... P>
Error Occupancy(void (*)(P...), int threads, size_t shared_bytes, int* blocks) {
  return emulation::BlocksPerMultiprocessor(threads, shared_bytes, blocks);
}

template <class... P>
Error Launch(void (*kernel)(P...), const LaunchShape& shape, Stream,
             const P&... arguments) {
  const auto body = [&] { kernel(arguments...); };
  using Body = decltype(body);
  const emulation::Kernel called = {
      [](const void* b) { (*static_cast<Body*>(b))(); }, &body,
      reinterpret_cast<const void*>(kernel), __PRETTY_FUNCTION__};
  return emulation::LaunchKernel(
      called,
      {shape.blocks, shape.threads, shape.shared_bytes, shape.cooperative});
}

inline Error ZeroMemory(void* data, size_t bytes, Stream) {
  return emulation::Zero(data, bytes);
}

class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal)
      : error_(emulation::CheckOrdinal(ordinal)) {}
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  Error error() const { return error_; }

 private:
  Error error_;
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_
