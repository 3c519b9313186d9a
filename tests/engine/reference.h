// An LSTM forward and backward through time, one scalar after the other in
// double: the plain statement of what the engine computes. It shares no code
// with the engine.
#ifndef TF_ECORNN_TESTS_ENGINE_REFERENCE_H_
#define TF_ECORNN_TESTS_ENGINE_REFERENCE_H_

#include "array.h"
#include "problem.h"

namespace ecornn {
namespace test {

struct Reference {
  Array<double> last_output;  // (B, U)
  Array<double> final_h;      // (B, U)
  Array<double> final_c;      // (B, U)
  Array<double> outputs;      // (B, T, U) in processing order
  Array<double> previous_h;   // (B, T, U) zero at masked steps
  Array<double> previous_c;   // (B, T, U) zero at masked steps

  Array<double> grad_gates;      // (B, T, 4U)
  Array<double> grad_initial_h;  // (B, U)
  Array<double> grad_initial_c;  // (B, U)
  Array<double> grad_bias;       // (4U)

  // The least distance of an activation's argument from one of its kinks.
  double kink_distance;
  // The largest magnitude of a pre-activation, a state or a gradient.
  double largest;
};

Reference RunReference(const Problem<double>& problem);

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_REFERENCE_H_
