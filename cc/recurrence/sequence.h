// The arguments of a recurrent cell over a whole sequence, forward and
// backward, and of the products that the weights' gradients are: what every
// engine takes. Raw pointers and sizes, no framework.
//
// Notation: B batch rows, T steps, U units, G gates of U units each (LSTM 4: i,
// f, c, o; GRU 3: z, r, h). S is the storage type, C the type that is computed
// in. Arrays are dense and row-major. Sequences lie in input time order,
// whichever way they are processed; `outputs` and its gradient lie in
// processing order.
#ifndef TF_ECORNN_CC_RECURRENCE_SEQUENCE_H_
#define TF_ECORNN_CC_RECURRENCE_SEQUENCE_H_

#include <stdint.h>

#include "activation.h"
#include "number.h"

namespace ecornn {

enum class CellKind : int {
  kLstm,
  kGru,            // the reset gate multiplies h before its product
  kGruResetAfter,  // the reset gate multiplies the product
};

struct Sequence {
  CellKind cell;
  int64_t batch;
  int64_t steps;
  int64_t units;
  bool reverse;               // process steps T-1 ... 0
  bool zero_output_for_mask;  // masked steps put out zero, not a repetition
  Activation activation;
  Activation recurrent_activation;
};

template <class S>
struct ForwardArgs {
  using C = ComputeType<S>;
  Sequence sequence;

  // Inputs. Those marked ? may be null. The input side comes either ready, as
  // gates_x, or as x and its kernel, whose product joins the recurrent one.
  const S* gates_x;            // ? (B, T, GU) time-parallel part, without bias
  const S* x;                  // ? (B, T, F)
  const S* kernel;             // ? (F, GU)
  int64_t features;            // F
  const S* recurrent_kernel;   // (U, GU)
  const S* bias;               // ? (GU)
  const S* recurrent_bias;     // ? (GU) GRU with reset after
  const S* initial_h;          // (B, U)
  const S* initial_c;          // (B, U) LSTM
  const bool* mask;            // ? (B, T) false: the step is skipped
  const bool* reset;           // ? (B, T) true: zero state before the step
  const S* recurrent_dropout;  // ? (B, G, U) multiplies h, gate by gate

  // Outputs, each element written. Those marked ? may be null.
  S* last_output;  // (B, U)
  S* final_h;      // (B, U)
  S* final_c;      // (B, U) LSTM
  S* outputs;      // ? (B, T, U)

  // Saved for the backward pass: all of the cell's or none. Zero at masked
  // steps.
  S* gates;       // ? (B, T, GU) may be the memory of gates_x
  S* previous_h;  // ? (B, T, U) state that entered the step
  C* previous_c;  // ? (B, T, U) LSTM
  S* candidate;   // ? (B, T, U) GRU: the candidate's recurrent sum with reset
                  // after, else the operand r * h of its product
};

template <class S>
struct BackwardArgs {
  using C = ComputeType<S>;
  Sequence sequence;

  // Inputs: what the forward pass saved and was given, and the gradients of
  // what it put out.
  const S* gates;              // (B, T, GU)
  const S* previous_h;         // (B, T, U) GRU
  const C* previous_c;         // (B, T, U) LSTM
  const S* candidate;          // (B, T, U) GRU with reset after
  const S* recurrent_kernel;   // (U, GU)
  const bool* mask;            // ? (B, T)
  const bool* reset;           // ? (B, T)
  const S* recurrent_dropout;  // ? (B, G, U)
  const S* grad_last_output;   // (B, U)
  const S* grad_final_h;       // (B, U)
  const S* grad_final_c;       // (B, U) LSTM
  const S* grad_outputs;       // ? (B, T, U)

  // Outputs, each element written. Gradients of the pre-activations are zero at
  // masked steps.
  S* grad_gates;      // (B, T, GU) the input side; may be `gates`' memory
  S* grad_candidate;  // (B, T, U) GRU with reset after: the recurrent side of
                      // the candidate, the other gates' sides being equal
  S* grad_initial_h;  // (B, U)
  S* grad_initial_c;  // (B, U) LSTM
  S* grad_bias;       // ? (GU)
  S* grad_recurrent_bias;  // ? (GU) GRU with reset after
};

// Products summed over rows and steps: of each left-hand sequence, transposed,
// with columns [first, first + count) of one right-hand sequence.
template <class S>
struct SummedProductsArgs {
  struct Left {
    const S* sequence;  // (B, T, M)
    int64_t width;      // M
    S* product;         // (M, count), the output
  };
  static constexpr int kMostLefts = 2;

  int64_t batch;
  int64_t steps;
  Left lefts[kMostLefts];
  int left_count;
  const S* right;  // (B, T, N)
  int64_t width;   // N
  int64_t first;
  int64_t count;
  const bool* mask;  // ? (B, T) false: the step is left out
  // ? (B, G, M) multiplies the first left-hand sequence, for each of the G
  // parts of equal width that the columns fall into.
  const S* factors;
  int64_t parts;  // G
};

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_SEQUENCE_H_
