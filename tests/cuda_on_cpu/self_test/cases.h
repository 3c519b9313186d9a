// Little kernels, by name, for tests of the emulation.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_SELF_TEST_CASES_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_SELF_TEST_CASES_H_

#include <stdint.h>

#include <vector>

#include "../../../cuda/platform.h"

namespace ecornn {
namespace cuda {
namespace self_test {

inline constexpr int64_t kCount = 1024;
inline constexpr int64_t kScratchBytes = 4096;

// What every kernel gets: an ordinary array of kCount numbers, all 1, and
// working memory whose first half was zeroed before the launch.
struct Memory {
  float* array;
  unsigned char* scratch;
};

ECORNN_DEVICE Pointer<float> Array(const Memory& memory) {
  return Global(memory.array, kCount);
}
// Numbers of working memory, and a counter after them.
inline constexpr int64_t kScratchNumbers = kScratchBytes / 4 - 32;
ECORNN_DEVICE Pointer<float> Numbers(const Memory& memory) {
  return Global(reinterpret_cast<float*>(memory.scratch + 128),
                kScratchNumbers);
}
ECORNN_DEVICE Pointer<unsigned> Counter(const Memory& memory) {
  return Global(reinterpret_cast<unsigned*>(memory.scratch), 1);
}

// Waits until all blocks have arrived `round` times. Thread 0 alone does it.
ECORNN_DEVICE void AwaitArrivals(const Memory& memory, unsigned round) {
  const auto target = static_cast<unsigned>(BlockCount()) * round;
  while (ReadCounter(Counter(memory)) < target) {
  }
}

// A barrier of the whole grid, as it should be.
ECORNN_DEVICE void GridBarrier(const Memory& memory, unsigned round) {
  BlockBarrier(SyncPoint::kPublished);
  if (ThreadIndex() == 0) {
    DeviceFence(SyncPoint::kPublishFence);
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, round);
    DeviceFence(SyncPoint::kArrivalFence);
  }
  BlockBarrier(SyncPoint::kArrived);
}

struct Case {
  const char* name;
  void (*kernel)(Memory);
  LaunchShape shape;
};

inline std::vector<Case>& Cases() {
  static std::vector<Case> cases;
  return cases;
}

struct Register {
  explicit Register(const Case& added) { Cases().push_back(added); }
};

// A kernel of the list: ECORNN_CASE(name, blocks, threads, ...) { body }, with
// its shared memory in bytes and whether it is cooperative.
#define ECORNN_CASE(name, blocks, threads, shared, cooperative) \
  ECORNN_KERNEL name(Memory memory);                            \
  const Register register_##name(                               \
      {#name, &name, {blocks, threads, shared, cooperative}});  \
  ECORNN_KERNEL name([[maybe_unused]] Memory memory)

}  // namespace self_test
}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_SELF_TEST_CASES_H_
