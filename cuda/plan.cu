#include "plan.h"

#include <algorithm>

#include "block_shape.h"

namespace ecornn {
namespace cuda {
namespace {

constexpr Error kSuccess = 0;
constexpr Error kInvalidValue = 1;  // cudaErrorInvalidValue
constexpr size_t kAlignment = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Hands out pieces of a memory, each aligned.
class Pieces {
 public:
  size_t Take(int64_t count, size_t bytes) {
    const size_t at = used_;
    used_ +=
        CeilDiv(count * static_cast<int64_t>(bytes), kAlignment) * kAlignment;
    return at;
  }
  size_t used() const { return used_; }

 private:
  size_t used_ = 0;
};

void PlaceShared(const PlanRequest& r, Plan* p) {
  Pieces pieces;
  pieces.Take(r.product_warps * r.tile_rows * StageStride(r.operand_bytes),
              r.operand_bytes);
  p->shared_parts = pieces.Take(
      r.product_warps * r.gates * r.tile_rows * r.part_stride, r.compute_bytes);
  p->shared_marks = pieces.Take(int64_t{p->row_tiles} * r.tile_rows, 1);
  if (p->persistent) {
    p->shared_states =
        pieces.Take(int64_t{p->group} * p->row_tiles * r.states * kTileSums,
                    r.compute_bytes);
    const int64_t chunks =
        int64_t{p->group} * p->chunks - std::min(p->chunks, r.kept_chunks);
    p->shared_weights = pieces.Take(
        chunks * r.gates * r.tile_units * kChunkDepth + r.weight_padding,
        r.operand_bytes);
  }
  p->shared_bytes = pieces.used();
}

void PlaceScratch(const PlanRequest& r, Plan* p) {
  const int64_t rows = int64_t{p->row_slices} * p->row_tiles * r.tile_rows;
  const int64_t operand = rows * p->chunks * kChunkDepth;
  Pieces pieces;
  p->weights = pieces.Take(int64_t{p->unit_slices} * p->chunks * r.gates *
                                   r.tile_units * kChunkDepth +
                               r.weight_padding,
                           r.operand_bytes);
  p->exchange = pieces.Take(2 * r.operands * operand, r.operand_bytes);
  p->inner_exchange = pieces.Take(r.inner_operands * operand, r.operand_bytes);
  p->counters =
      pieces.Take(int64_t{p->row_slices} * kCounterStride, sizeof(unsigned));
  p->counters_bytes = pieces.used() - p->counters;
  p->states = pieces.Take(p->persistent ? 0
                                        : p->blocks * p->group * p->row_tiles *
                                              r.states * kTileSums,
                          r.compute_bytes);
  p->row_bias = pieces.Take(r.batch * r.bias_sums * r.units, r.compute_bytes);
  p->scratch_bytes = pieces.used();
}

Plan Split(const PlanRequest& r, bool persistent, int group, int row_tiles) {
  Plan p = {};
  p.persistent = persistent;
  p.chunks = static_cast<int>(CeilDiv(r.units, kChunkDepth));
  // Whole chunks, so that every operand that is read has been published.
  p.unit_slices = p.chunks * (kChunkDepth / r.tile_units);
  p.group = group;
  p.unit_blocks = static_cast<int>(CeilDiv(p.unit_slices, group));
  p.row_tiles = row_tiles;
  p.row_slices =
      static_cast<int>(CeilDiv(CeilDiv(r.batch, r.tile_rows), row_tiles));
  p.blocks = int64_t{p.unit_blocks} * p.row_slices;
  PlaceShared(r, &p);
  return p;
}

// The persistent plan with the least work for the busiest multiprocessor, if
// any fits. All of its blocks must run at once.
Error FindPersistent(const PlanRequest& r, const Device& device,
                     const OccupancyOf& occupancy, Plan* best, bool* found) {
  *found = false;
  int64_t best_cost = 0;
  const Plan smallest = Split(r, true, 1, 1);
  const int64_t all_row_tiles = CeilDiv(r.batch, r.tile_rows);
  for (int group = 1; group <= smallest.unit_slices; ++group) {
    for (int row_tiles = 1; row_tiles <= all_row_tiles; ++row_tiles) {
      const Plan p = Split(r, true, group, row_tiles);
      if (p.shared_bytes > device.shared_per_block) break;
      int resident = 0;
      const Error error = occupancy(p.shared_bytes, &resident);
      if (error != kSuccess) return error;
      if (p.blocks > int64_t{resident} * device.multiprocessors) continue;
      // Tiles of one step on the busiest multiprocessor.
      const int64_t cost = int64_t{group} * row_tiles *
                           CeilDiv(p.blocks, device.multiprocessors);
      if (!*found || cost < best_cost) {
        *best = p;
        best_cost = cost;
        *found = true;
      }
    }
    if (Split(r, true, group, 1).shared_bytes > device.shared_per_block) break;
  }
  return kSuccess;
}

}  // namespace

Error MakePlan(const PlanRequest& request, const Device& device, Path path,
               const OccupancyOf& occupancy, Plan* plan) {
  bool found = false;
  if (path != Path::kSteps && device.cooperative_launch && request.batch > 0) {
    const Error error =
        FindPersistent(request, device, occupancy, plan, &found);
    if (error != kSuccess) return error;
  }
  if (!found) {
    if (path == Path::kPersistent && request.batch > 0) return kInvalidValue;
    *plan = Split(request, false, 1, 1);
  }
  PlaceScratch(request, plan);
  return kSuccess;
}

}  // namespace cuda
}  // namespace ecornn
