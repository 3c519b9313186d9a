// How a call is laid out on a device: which path, which block owns what, and
// where everything lies in working and in shared memory. Plain arithmetic, so
// that a plan can be asked for any device.
//
// Units are split into slices of a tile's units, rows into slices of a number
// of tiles. A block owns one slice of rows and one group of unit slices for the
// whole sequence; blocks of the same rows exchange the state after each step,
// the others know nothing of each other.
#ifndef TF_ECORNN_CUDA_PLAN_H_
#define TF_ECORNN_CUDA_PLAN_H_

#include <stddef.h>
#include <stdint.h>

#include <functional>

#include "device.h"
#include "engine.h"

namespace ecornn {
namespace cuda {

// What a plan is made for: sizes of the call, of the cell, and of the tile.
struct PlanRequest {
  int64_t batch;
  int64_t units;
  int gates;
  int operands;        // what each step publishes of each unit
  int inner_operands;  // what it publishes between two phases
  int states;          // numbers kept of each unit of each row
  int bias_sums;       // of those, the sums of the biases' gradients
  int tile_units;
  int tile_rows;
  int product_warps;
  int kept_chunks;     // of weights that all warps together keep in registers
  int part_stride;     // of a tile's rows of sums
  int weight_padding;  // weights that are read beyond the last tile's
  int operand_bytes;
  int compute_bytes;
};

struct Plan {
  bool persistent;
  int unit_slices;
  int group;        // unit slices of one block
  int unit_blocks;  // blocks of the same rows
  int row_slices;
  int row_tiles;  // of one slice
  int chunks;     // of 16 units: the depth of a step's product
  int64_t blocks;
  size_t shared_bytes;
  // Offsets in shared memory. The weights, and the states, lie there in
  // persistent plans alone.
  size_t shared_parts;
  size_t shared_marks;
  size_t shared_states;
  size_t shared_weights;
  // Offsets in working memory.
  size_t weights;         // (unit slices, chunks, gates, tile units, 16)
  size_t exchange;        // (2, row slices, operands, chunks, rows, 16)
  size_t inner_exchange;  // (row slices, inner operands, chunks, rows, 16)
  size_t counters;        // (row slices, 32) unsigned
  size_t counters_bytes;
  size_t states;    // (blocks, group, row tiles, states, 256)
  size_t row_bias;  // (B, bias sums, U)
  size_t scratch_bytes;
};

// Blocks of so many bytes of shared memory that fit a multiprocessor at once.
using OccupancyOf = std::function<Error(size_t shared_bytes, int* blocks)>;

// An invalid value where `path` is persistent and no such plan fits the device.
Error MakePlan(const PlanRequest& request, const Device& device, Path path,
               const OccupancyOf& occupancy, Plan* plan);

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_PLAN_H_
