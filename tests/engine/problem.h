// One call's sizes, options and inputs, drawn from a seed.
#ifndef TF_ECORNN_TESTS_ENGINE_PROBLEM_H_
#define TF_ECORNN_TESTS_ENGINE_PROBLEM_H_

#include <cstdint>
#include <string>

#include "../../cc/recurrence/engine.h"
#include "array.h"
#include "random.h"

namespace ecornn {
namespace test {

inline constexpr int64_t kGates = 4;

struct Spec {
  int64_t batch = 1;
  int64_t steps = 1;
  int64_t units = 1;
  bool reverse = false;
  bool zero_output_for_mask = false;
  Activation activation = Activation::kTanh;
  Activation recurrent_activation = Activation::kSigmoid;

  // Which optional inputs are there.
  bool bias = true;
  bool mask = false;
  bool reset = false;
  bool recurrent_dropout = false;

  // Which results have a gradient: that of `outputs` may be absent, the others
  // are zero then.
  bool grad_outputs = true;
  bool grad_last_output = true;
  bool grad_final_h = true;
  bool grad_final_c = true;

  uint64_t seed = 1;
};

// Each flag of a spec by the toss of a coin, activations left alone.
void DrawOptions(Random& random, Spec* spec);

std::string Describe(const Spec& spec);

// Inputs of both passes; absent arrays are those the spec leaves out.
template <class S>
struct Problem {
  Spec spec;
  Array<S> gates_x;            // (B, T, 4U)
  Array<S> recurrent_kernel;   // (U, 4U)
  Array<S> bias;               // ? (4U)
  Array<S> initial_h;          // (B, U)
  Array<S> initial_c;          // (B, U)
  Array<bool> mask;            // ? (B, T)
  Array<bool> reset;           // ? (B, T)
  Array<S> recurrent_dropout;  // ? (B, 4, U)
  Array<S> grad_last_output;   // (B, U)
  Array<S> grad_final_h;       // (B, U)
  Array<S> grad_final_c;       // (B, U)
  Array<S> grad_outputs;       // ? (B, T, U)

  Sequence sequence() const;
  bool masked(int64_t row, int64_t t) const {
    return mask.present() && !mask[row * spec.steps + t];
  }
};

// Values of moderate size, whatever the activations. gates_x is NaN at masked
// steps.
template <class S>
Problem<S> Draw(const Spec& spec);

// As Draw, again and again with other seeds until rounding errors stay small:
// no value has grown large, and no pre-activation is so close to a kink that
// they might take it across. The seed is in the result's spec.
template <class S>
Problem<S> DrawComparable(Spec spec);

template <class S>
Problem<double> Widened(const Problem<S>& problem);

// The problem of some of the batch rows.
template <class S>
Problem<S> SomeRows(const Problem<S>& problem, int64_t first, int64_t count);

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_PROBLEM_H_
