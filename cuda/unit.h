// One tile type's engine: what a call launches. Each unit of units/ makes one.
#ifndef TF_ECORNN_CUDA_UNIT_H_
#define TF_ECORNN_CUDA_UNIT_H_

#include "bias.h"
#include "gru.h"
#include "lstm.h"
#include "pack.h"
#include "plan_cache.h"
#include "project.h"
#include "units.h"

namespace ecornn {
namespace cuda {

template <class Pass>
ECORNN_KERNEL ECORNN_BOUNDS(kBlockThreads, 1)
    RunSequence(typename Pass::Args args, Plan plan, unsigned char* scratch,
                Span span) {
  if constexpr (Pass::Tile::kAvailable) Pass(args, plan, scratch).Run(span);
}

// The first error of a row of launches; after it, nothing more is launched.
class Launches {
 public:
  explicit Launches(Stream stream) : stream_(stream) {}

  template <class... P>
  void Run(void (*kernel)(P...), const LaunchShape& shape,
           const P&... arguments) {
    if (error_ == 0) error_ = Launch(kernel, shape, stream_, arguments...);
  }
  void Zero(void* data, size_t bytes) {
    if (error_ == 0) error_ = ZeroMemory(data, bytes, stream_);
  }
  Error error() const { return error_; }

 private:
  const Stream stream_;
  Error error_ = 0;
};

inline int64_t Blocks(int64_t count, int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

// A pass over a sequence: plan, packed weights, launches.
template <class Pass>
class PassUnit {
 public:
  using Tile = typename Pass::Tile;
  using S = typename Pass::S;
  using C = typename Pass::C;
  using Operand = typename Pass::Tile::Operand;
  using Args = typename Pass::Args;
  static constexpr int kGates = Pass::kGates;

  static Error PlanOf(const Args& args, int operands, int bias_sums,
                      const Device& device, Path path, cuda::Plan* plan) {
    PlanRequest request = {};
    request.batch = args.sequence.batch;
    request.units = args.sequence.units;
    request.gates = kGates;
    request.operands = operands;
    request.inner_operands = Pass::Cell::kPhases - 1;
    request.states = Pass::kStates;
    request.bias_sums = bias_sums;
    request.tile_units = Tile::kUnits;
    request.tile_rows = Tile::kRows;
    request.product_warps = Tile::kProductWarps;
    request.kept_chunks = Tile::kKept * Tile::kProductWarps;
    request.part_stride = Tile::kPartStride;
    request.weight_padding = Tile::kWeightPadding;
    request.operand_bytes = sizeof(Operand);
    request.compute_bytes = sizeof(C);
    static PlanCache cache;
    return cache.Find(
        request, device, path,
        [](size_t shared_bytes, int* blocks) {
          return Occupancy(&RunSequence<Pass>, kBlockThreads, shared_bytes,
                           blocks);
        },
        plan);
  }

  // Packs (depth, gates * units), or transposed, to `packed`.
  template <bool kTransposed>
  static void Pack(const S* weights, int64_t depth, int64_t units,
                   int64_t unit_slices, Operand* packed, Launches* launches) {
    const int64_t chunks = Blocks(depth, kChunkDepth);
    const int64_t count =
        unit_slices * chunks * kGates * Tile::kUnits * kChunkDepth;
    if (count == 0) return;  // no features
    constexpr int64_t kMostBlocks = 4096;
    const int64_t blocks = Blocks(count, kBlockThreads);
    launches->Run(
        &PackWeights<Tile, kTransposed>,
        {blocks < kMostBlocks ? blocks : kMostBlocks, kBlockThreads, 0, false},
        PackArgs<S, Operand>{weights, packed, depth, units, kGates, unit_slices,
                             chunks});
  }

  static void RunSteps(const Args& args, const cuda::Plan& plan,
                       unsigned char* scratch, bool start_alone,
                       Launches* launches) {
    const LaunchShape shape = {plan.blocks, kBlockThreads, plan.shared_bytes,
                               plan.persistent};
    const int64_t steps = args.sequence.steps;
    const auto launch = [&](const Span& span) {
      launches->Run(&RunSequence<Pass>, shape, args, plan, scratch, span);
    };
    if (plan.persistent) {
      launches->Zero(scratch + plan.counters, plan.counters_bytes);
      launch({0, steps, -1, 0, true, true});
      return;
    }
    bool starts = true;
    if (start_alone || steps == 0) {
      launch({0, 0, -1, 0, true, steps == 0});
      starts = false;
    }
    for (int64_t i = 0; i < steps; ++i) {
      for (int phase = 0; phase < Pass::Cell::kPhases; ++phase) {
        launch({i, i + 1, phase, static_cast<int>(i % 2), starts, false});
        starts = false;
      }
    }
    if (steps > 0) {
      launch({steps, steps, -1, static_cast<int>(steps % 2), false, true});
    }
  }
};

template <class Cell, class Tile>
class ForwardUnit : public PassUnit<ForwardPass<Cell, Tile>> {
 public:
  using Base = PassUnit<ForwardPass<Cell, Tile>>;
  using S = typename Base::S;
  using Operand = typename Base::Operand;

  static Error Scratch(const ForwardArgs<S>& args, const Device& device,
                       Path path, size_t* bytes) {
    Layout layout;
    const Error error = Lay(args, device, path, &layout);
    *bytes = layout.bytes;
    return error;
  }

  static Error Run(const ForwardArgs<S>& given, const Device& device, Path path,
                   void* memory, Stream stream) {
    Layout layout;
    const Error error = Lay(given, device, path, &layout);
    if (error != 0 || given.sequence.batch == 0) return error;
    ForwardArgs<S> args = given;
    const Sequence& s = args.sequence;
    auto* scratch = static_cast<unsigned char*>(memory);
    BeginScratch(memory, layout.bytes);
    Launches launches(stream);
    if (args.kernel != nullptr && s.steps > 0) {
      Project(layout, scratch, &args, &launches);
    }
    if (s.steps > 0) {
      Base::template Pack<false>(
          args.recurrent_kernel, s.units, s.units, layout.plan.unit_slices,
          reinterpret_cast<Operand*>(scratch + layout.plan.weights), &launches);
    }
    Base::RunSteps(args, layout.plan, scratch, true, &launches);
    return launches.error();
  }

 private:
  // Working memory: the plan's, then what the inputs' product takes.
  struct Layout {
    cuda::Plan plan;
    size_t kernel;     // (unit slices, chunks of F, gates, tile units, 16)
    size_t projected;  // (B, T, GU) where nothing is saved
    size_t bytes;
  };

  static Error Lay(const ForwardArgs<S>& args, const Device& device, Path path,
                   Layout* layout) {
    *layout = {};
    const int operands =
        args.recurrent_dropout == nullptr ? 1 : Cell::kGateCount[0];
    const Error error =
        Base::PlanOf(args, operands, 0, device, path, &layout->plan);
    if (error != 0) return error;
    layout->bytes = layout->plan.scratch_bytes;
    if (args.kernel == nullptr) return 0;
    layout->kernel = layout->bytes;
    layout->bytes +=
        Rounded((layout->plan.unit_slices * Blocks(args.features, kChunkDepth) *
                     Base::kGates * Tile::kUnits * kChunkDepth +
                 Tile::kWeightPadding) *
                sizeof(Operand));
    layout->projected = layout->bytes;
    if (args.gates == nullptr) {
      const Sequence& s = args.sequence;
      layout->bytes +=
          Rounded(s.batch * s.steps * Base::kGates * s.units * sizeof(S));
    }
    return 0;
  }
  static size_t Rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

  // Puts x W where the saved gates will be, and makes it the input side.
  static void Project(const Layout& layout, unsigned char* scratch,
                      ForwardArgs<S>* args, Launches* launches) {
    const Sequence& s = args->sequence;
    auto* packed = reinterpret_cast<Operand*>(scratch + layout.kernel);
    const int64_t unit_slices = layout.plan.unit_slices;
    Base::template Pack<false>(args->kernel, args->features, s.units,
                               unit_slices, packed, launches);
    S* projected = args->gates != nullptr
                       ? args->gates
                       : reinterpret_cast<S*>(scratch + layout.projected);
    const int64_t rows = s.batch * s.steps;
    const int64_t tiles = Blocks(rows, Tile::kRows) * unit_slices;
    launches->Run(&ProjectInputs<Tile, Base::kGates>,
                  {Blocks(tiles, kWarps), kBlockThreads,
                   ProjectSharedBytes<Tile>(), false},
                  ProjectArgs<S, Operand>{args->x, packed, projected, rows,
                                          args->features, s.units, unit_slices,
                                          Blocks(args->features, kChunkDepth)});
    args->gates_x = projected;
    args->kernel = nullptr;
  }
};

template <class Cell, class Tile>
class BackwardUnit : public PassUnit<BackwardPass<Cell, Tile>> {
 public:
  using Pass = BackwardPass<Cell, Tile>;
  using Base = PassUnit<Pass>;
  using S = typename Base::S;
  using C = typename Base::C;
  using Operand = typename Base::Operand;

  static Error Scratch(const BackwardArgs<S>& args, const Device& device,
                       Path path, size_t* bytes) {
    cuda::Plan plan = {};
    const Error error = Lay(args, device, path, &plan);
    *bytes = plan.scratch_bytes;
    return error;
  }

  static Error Run(const BackwardArgs<S>& args, const Device& device, Path path,
                   void* memory, Stream stream) {
    cuda::Plan plan = {};
    const Error error = Lay(args, device, path, &plan);
    if (error != 0) return error;
    const Sequence& s = args.sequence;
    auto* scratch = static_cast<unsigned char*>(memory);
    BeginScratch(memory, plan.scratch_bytes);
    Launches launches(stream);
    if (s.batch > 0) {
      if (s.steps > 0) {
        Base::template Pack<true>(
            args.recurrent_kernel, s.units, s.units, plan.unit_slices,
            reinterpret_cast<Operand*>(scratch + plan.weights), &launches);
      }
      Base::RunSteps(args, plan, scratch, false, &launches);
    }
    if (WantsBias(args)) {
      launches.Run(
          &SumBiases<S>,
          {Blocks(Pass::kBiasSums * s.units, kBlockThreads), kBlockThreads, 0,
           false},
          BiasArgs<S>{reinterpret_cast<C*>(scratch + plan.row_bias),
                      args.grad_bias, args.grad_recurrent_bias, s.batch,
                      s.units, Base::kGates, Pass::kBiasSums});
    }
    return launches.error();
  }

 private:
  static bool WantsBias(const BackwardArgs<S>& args) {
    return args.grad_bias != nullptr || args.grad_recurrent_bias != nullptr;
  }
  static Error Lay(const BackwardArgs<S>& args, const Device& device, Path path,
                   cuda::Plan* plan) {
    return Base::PlanOf(args, Base::kGates,
                        WantsBias(args) ? Pass::kBiasSums : 0, device, path,
                        plan);
  }
};

// The units of a direction, by cell.
template <class Tile, class Args>
struct Units;
template <class Tile, class S>
struct Units<Tile, ForwardArgs<S>> {
  using Lstm = ForwardUnit<LstmForward<S>, Tile>;
  using Gru = ForwardUnit<GruForward<S, false>, Tile>;
  using GruResetAfter = ForwardUnit<GruForward<S, true>, Tile>;
};
template <class Tile, class S>
struct Units<Tile, BackwardArgs<S>> {
  using Lstm = BackwardUnit<LstmBackward<S>, Tile>;
  using Gru = BackwardUnit<GruBackward<S, false>, Tile>;
  using GruResetAfter = BackwardUnit<GruBackward<S, true>, Tile>;
};

// Calls use(unit) with the unit of the arguments' direction and cell.
template <class Tile, class Args, class Use>
Error WithUnit(const Args& args, const Use& use) {
  using Cells = Units<Tile, Args>;
  switch (args.sequence.cell) {
    case CellKind::kGru:
      return use(typename Cells::Gru());
    case CellKind::kGruResetAfter:
      return use(typename Cells::GruResetAfter());
    case CellKind::kLstm:
      break;
  }
  return use(typename Cells::Lstm());
}

}  // namespace cuda
}  // namespace ecornn

#endif  // TF_ECORNN_CUDA_UNIT_H_
