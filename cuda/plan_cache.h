// Plans that have been made, so that a call need not ask the runtime again.
#ifndef TF_ECORNN_CUDA_PLAN_CACHE_H_
#define TF_ECORNN_CUDA_PLAN_CACHE_H_

#include <array>
#include <map>
#include <mutex>

#include "plan.h"

namespace ecornn {
namespace cuda {

class PlanCache {
 public:
  // MakePlan, of one kernel.
  Error Find(const PlanRequest& request, const Device& device, Path path,
             const OccupancyOf& occupancy, Plan* plan) {
    const Key key = KeyOf(request, device, path);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = plans_.find(key);
    if (known != plans_.end()) {
      *plan = known->second;
      return 0;
    }
    const Error error = MakePlan(request, device, path, occupancy, plan);
    if (error != 0) return error;
    // Batches of ever new sizes must not pile up.
    if (plans_.size() >= kMost) plans_.clear();
    plans_.emplace(key, *plan);
    return 0;
  }

 private:
  static constexpr size_t kMost = 1024;
  using Key = std::array<int64_t, 22>;

  static Key KeyOf(const PlanRequest& r, const Device& d, Path path) {
    return {r.batch,
            r.units,
            r.gates,
            r.operands,
            r.inner_operands,
            r.states,
            r.bias_sums,
            r.tile_units,
            r.tile_rows,
            r.product_warps,
            r.kept_chunks,
            r.part_stride,
            r.weight_padding,
            r.operand_bytes,
            r.compute_bytes,
            d.ordinal,
            d.major,
            d.minor,
            d.multiprocessors,
            static_cast<int64_t>(d.shared_per_block),
            d.cooperative_launch,
            static_cast<int64_t>(path)};
  }

  std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_PLAN_CACHE_H_
