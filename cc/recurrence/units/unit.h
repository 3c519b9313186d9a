// The body of one instruction set's translation unit for one storage type.
#ifndef TF_ECORNN_CC_RECURRENCE_UNITS_UNIT_H_
#define TF_ECORNN_CC_RECURRENCE_UNITS_UNIT_H_

#include "../backward.h"
#include "../cell/gru.h"
#include "../cell/lstm.h"
#include "../forward.h"
#include "../summed_products.h"
#include "units.h"

namespace ecornn {
namespace ECORNN_TARGET {

// The passes of a cell, by storage type and functions.
struct LstmPasses {
  template <class S, class Functions>
  using Forward = ForwardPass<LstmForward<S, Functions>>;
  template <class S, class Functions>
  using Backward = BackwardPass<LstmBackward<S, Functions>>;
};

template <bool kResetAfter>
struct GruPasses {
  template <class S, class Functions>
  using Forward = ForwardPass<GruForward<S, Functions, kResetAfter>>;
  template <class S, class Functions>
  using Backward = BackwardPass<GruBackward<S, Functions, kResetAfter>>;
};

// Calls use(passes, functions) for the sequence's cell and activations: a pair
// of functions of its own for Keras's defaults, else one that decides per call.
template <class Use>
auto WithFunctions(const Sequence& s, const Use& use) {
  if (s.activation == Activation::kTanh &&
      s.recurrent_activation == Activation::kSigmoid) {
    return use(DefaultFunctions{});
  }
  return use(RuntimeFunctions{{s.activation}, {s.recurrent_activation}});
}

template <class Use>
auto WithPasses(const Sequence& s, const Use& use) {
  return WithFunctions(s, [&](auto functions) {
    switch (s.cell) {
      case CellKind::kGru:
        return use(GruPasses<false>{}, functions);
      case CellKind::kGruResetAfter:
        return use(GruPasses<true>{}, functions);
      case CellKind::kLstm:
        break;
    }
    return use(LstmPasses{}, functions);
  });
}

template <class S>
size_t ForwardScratch(const ForwardArgs<S>& args, int team_size) {
  return WithPasses(args.sequence, [&](auto passes, auto f) {
    using Pass = typename decltype(passes)::template Forward<S, decltype(f)>;
    return Pass(args, f, team_size).scratch_bytes();
  });
}

template <class S>
void Forward(const ForwardArgs<S>& args, void* scratch, Team& team) {
  WithPasses(args.sequence, [&](auto passes, auto f) {
    using Pass = typename decltype(passes)::template Forward<S, decltype(f)>;
    Pass(args, f, team.size()).Run(scratch, team);
  });
}

template <class S>
size_t BackwardScratch(const BackwardArgs<S>& args, int team_size) {
  return WithPasses(args.sequence, [&](auto passes, auto f) {
    using Pass = typename decltype(passes)::template Backward<S, decltype(f)>;
    return Pass(args, f, team_size).scratch_bytes();
  });
}

template <class S>
void Backward(const BackwardArgs<S>& args, void* scratch, Team& team) {
  WithPasses(args.sequence, [&](auto passes, auto f) {
    using Pass = typename decltype(passes)::template Backward<S, decltype(f)>;
    Pass(args, f, team.size()).Run(scratch, team);
  });
}

template <class S>
size_t SummedProductsScratch(const SummedProductsArgs<S>& args, int team_size) {
  return SummedProducts<S>(args, team_size).scratch_bytes();
}

template <class S>
void RunSummedProducts(const SummedProductsArgs<S>& args, void* scratch,
                       Team& team) {
  SummedProducts<S>(args, team.size()).Run(scratch, team);
}

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#define ECORNN_DEFINE_UNIT(S)                            \
  namespace ecornn {                                     \
  namespace ECORNN_TARGET {                              \
  template <>                                            \
  const Engine<S> UnitEngine<S>::kEngine = {             \
      &ForwardScratch<S>,        &Forward<S>,            \
      &BackwardScratch<S>,       &Backward<S>,           \
      &SummedProductsScratch<S>, &RunSummedProducts<S>}; \
  }                                                      \
  }

#endif  // TF_ECORNN_CC_RECURRENCE_UNITS_UNIT_H_
