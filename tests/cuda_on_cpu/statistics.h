// What was done since the last reset, for tests that count launches.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_STATISTICS_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_STATISTICS_H_

#include <stdint.h>

#include <atomic>

namespace ecornn {
namespace emulation {

struct Statistics {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> cooperative_launches{0};
  std::atomic<int64_t> blocks{0};
  std::atomic<int64_t> barriers{0};  // of whole blocks
};
extern Statistics statistics;

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_STATISTICS_H_
