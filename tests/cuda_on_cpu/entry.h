// The GPU engine (cuda/engine.h) for callers without TensorFlow, in C: NumPy
// arrays where it is emulated, device pointers of another framework on a GPU.
//
// A call is one struct whose every field has eight bytes, so that its layout in
// other languages is the list of its fields. Optional pointers may be null, and
// what an array holds is said in cc/recurrence/sequence.h. Arrays must be
// aligned as a GPU's are: to 256 bytes.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_ENTRY_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_ENTRY_H_

#include <stdint.h>

#define ECORNN_CUDA_ENTRY __attribute__((visibility("default")))

extern "C" {

// Values of `dtype`.
enum EcornnCudaDtype {
  kEcornnCudaFloat,
  kEcornnCudaDouble,
  kEcornnCudaHalf,
  kEcornnCudaBFloat16,
};

// What both directions begin with.
struct EcornnCudaCall {
  int64_t dtype;
  int64_t cell;  // of CellKind: 0 LSTM, 1 GRU, 2 GRU with reset after
  int64_t batch;
  int64_t steps;
  int64_t units;
  int64_t reverse;               // 0 or 1
  int64_t zero_output_for_mask;  // 0 or 1
  int64_t activation;            // of Activation
  int64_t recurrent_activation;
  int64_t device;
  int64_t tensor_float_32;  // 0 or 1
  int64_t path;             // of Path: 0 choose, 1 steps, 2 persistent
  void* scratch;
  void* stream;
};

struct EcornnCudaForward {
  EcornnCudaCall call;
  int64_t features;
  const void* gates_x;
  const void* x;
  const void* kernel;
  const void* recurrent_kernel;
  const void* bias;
  const void* recurrent_bias;
  const void* initial_h;
  const void* initial_c;
  const void* mask;
  const void* reset;
  const void* recurrent_dropout;
  void* last_output;
  void* final_h;
  void* final_c;
  void* outputs;
  void* gates;
  void* previous_h;
  void* previous_c;
  void* candidate;
};

struct EcornnCudaBackward {
  EcornnCudaCall call;
  const void* gates;
  const void* previous_h;
  const void* previous_c;
  const void* candidate;
  const void* recurrent_kernel;
  const void* mask;
  const void* reset;
  const void* recurrent_dropout;
  const void* grad_last_output;
  const void* grad_final_h;
  const void* grad_final_c;
  const void* grad_outputs;
  void* grad_gates;
  void* grad_candidate;
  void* grad_initial_h;
  void* grad_initial_c;
  void* grad_bias;
  void* grad_recurrent_bias;
};

// The scratch that a call needs, in bytes. Each returns an error, 0: none.
ECORNN_CUDA_ENTRY int ecornn_cuda_forward_scratch(const EcornnCudaForward* call,
                                                  int64_t* bytes);
ECORNN_CUDA_ENTRY int ecornn_cuda_forward(const EcornnCudaForward* call);
ECORNN_CUDA_ENTRY int ecornn_cuda_backward_scratch(
    const EcornnCudaBackward* call, int64_t* bytes);
ECORNN_CUDA_ENTRY int ecornn_cuda_backward(const EcornnCudaBackward* call);
ECORNN_CUDA_ENTRY const char* ecornn_cuda_error_text(int error);

// sizeof the structs, for a caller to compare with its own.
ECORNN_CUDA_ENTRY int64_t ecornn_cuda_forward_bytes(void);
ECORNN_CUDA_ENTRY int64_t ecornn_cuda_backward_bytes(void);

// The planner, for a device of any description; cuda/plan.h says what the
// fields mean.
struct EcornnPlanRequest {
  int64_t batch;
  int64_t units;
  int64_t gates;
  int64_t operands;
  int64_t states;
  int64_t tile_units;
  int64_t tile_rows;
  int64_t product_warps;
  int64_t kept_chunks;
  int64_t part_stride;
  int64_t weight_padding;
  int64_t operand_bytes;
  int64_t compute_bytes;
  int64_t multiprocessors;
  int64_t shared_per_block;
  int64_t shared_per_multiprocessor;
  int64_t most_resident;  // blocks of a multiprocessor, for their registers
  int64_t cooperative;
  int64_t path;
};

struct EcornnPlanResult {
  int64_t persistent;
  int64_t unit_slices;
  int64_t group;
  int64_t unit_blocks;
  int64_t row_slices;
  int64_t row_tiles;
  int64_t chunks;
  int64_t blocks;
  int64_t shared_bytes;
  int64_t scratch_bytes;
};

ECORNN_CUDA_ENTRY int ecornn_cuda_plan(const EcornnPlanRequest* request,
                                       EcornnPlanResult* result);
}

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_ENTRY_H_
