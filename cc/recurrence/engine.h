// The CPU engine's interface: a whole sequence of a recurrent cell, forward and
// backward. Knows nothing of TensorFlow: raw pointers, sizes, a team of
// threads.
#ifndef TF_ECORNN_CC_RECURRENCE_ENGINE_H_
#define TF_ECORNN_CC_RECURRENCE_ENGINE_H_

#include <stddef.h>

#include "isa.h"
#include "sequence.h"
#include "team.h"

namespace ecornn {

// One instruction set's engine for one storage type. `*_scratch` gives the
// bytes of 64-byte aligned working memory that the call needs for that team;
// its contents on entry do not matter.
//
// Results of a row depend on that row and the weights alone, bit for bit: not
// on the other rows, the team's size or how rows were split. Gradients of
// biases sum in an order that depends on B and T only, summed products in that
// of rows and steps.
template <class S>
struct Engine {
  size_t (*forward_scratch)(const ForwardArgs<S>& args, int team_size);
  void (*forward)(const ForwardArgs<S>& args, void* scratch, Team& team);
  size_t (*backward_scratch)(const BackwardArgs<S>& args, int team_size);
  void (*backward)(const BackwardArgs<S>& args, void* scratch, Team& team);
  size_t (*summed_products_scratch)(const SummedProductsArgs<S>& args,
                                    int team_size);
  void (*summed_products)(const SummedProductsArgs<S>& args, void* scratch,
                          Team& team);
};

// The engine of an available instruction set. S: float, double, Half, BFloat16.
template <class S>
const Engine<S>& EngineFor(Isa isa);

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_ENGINE_H_
