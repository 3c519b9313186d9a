#include "execution_record.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "arguments.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace ecornn {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

namespace {

// Sums over a node's executions, but for the bytes: those of the largest one.
struct Entry {
  std::string op;
  std::string dtype;
  int64_t calls = 0;
  int64_t nanoseconds = 0;
  int64_t multiply_adds = 0;
  int64_t bytes = 0;
};

std::atomic<bool> recording{false};
std::mutex mutex;

std::map<std::string, Entry>& Entries() {
  // Never destroyed: ops may still run while the process ends.
  static auto* entries = new std::map<std::string, Entry>;
  return *entries;
}

// The steps that no mask takes out.
int64_t ValidSteps(OpKernelContext* context, const Sequence& s) {
  const Tensor* mask = nullptr;
  if (!OptionalInput(context, "mask", &mask).ok() || mask == nullptr) {
    return s.batch * s.steps;
  }
  const bool* data = mask->flat<bool>().data();
  return std::count(data, data + mask->NumElements(), true);
}

// How wide the operand is that meets weights at a step: h, or forward [x, h]
// where the op has the kernel of x.
int64_t OperandWidth(OpKernelContext* context, const Sequence& s) {
  const Tensor* kernel = nullptr;
  // Gradient ops have no such input.
  if (!OptionalInput(context, "kernel", &kernel).ok()) kernel = nullptr;
  return s.units + (kernel == nullptr ? 0 : kernel->dim_size(0));
}

int64_t OutputBytes(OpKernelContext* context) {
  int64_t bytes = 0;
  for (int i = 0; i < context->num_outputs(); ++i) {
    const Tensor* output = context->mutable_output(i);
    if (output != nullptr) bytes += output->TotalBytes();
  }
  return bytes;
}

}  // namespace

ExecutionRecord::ExecutionRecord(OpKernelContext* context)
    : context_(recording.load(std::memory_order_relaxed) ? context : nullptr),
      start_(context_ == nullptr ? std::chrono::steady_clock::time_point()
                                 : std::chrono::steady_clock::now()) {}

void ExecutionRecord::Enter(const Sequence& sequence) const {
  if (context_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now();
  // Elsewhere than on a CPU the work has only been ordered by now, and a mask
  // lies out of reach.
  const bool measured = context_->op_device_context() == nullptr;
  const int64_t multiply_adds =
      measured ? ValidSteps(context_, sequence) * GateCount(sequence.cell) *
                     sequence.units * OperandWidth(context_, sequence)
               : 0;
  const int64_t bytes = OutputBytes(context_);
  const tensorflow::OpKernel& kernel = context_->op_kernel();

  const std::lock_guard<std::mutex> lock(mutex);
  Entry& entry = Entries()[kernel.name()];
  entry.op = kernel.type_string();
  entry.dtype = tensorflow::DataTypeString(context_->input_dtype(0));
  entry.calls += 1;
  if (measured) {
    entry.nanoseconds +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(end - start_)
            .count();
  }
  entry.multiply_adds += multiply_adds;
  entry.bytes = std::max(entry.bytes, bytes);
}

}  // namespace ecornn

// Begins (1) or ends (0) the record of executions; what it has is kept.
extern "C" __attribute__((visibility("default"))) void ecornn_record(int on) {
  ecornn::recording.store(on != 0, std::memory_order_relaxed);
}

// The record: for each node a line of its name, op, dtype, calls, nanoseconds,
// multiply-adds and bytes of outputs, with tabs between. The text lives until
// the same thread asks again.
extern "C" __attribute__((visibility("default"))) const char*
ecornn_recorded() {
  thread_local std::string text;
  text.clear();
  const std::lock_guard<std::mutex> lock(ecornn::mutex);
  for (const auto& [name, entry] : ecornn::Entries()) {
    text += name + '\t' + entry.op + '\t' + entry.dtype;
    for (int64_t number :
         {entry.calls, entry.nanoseconds, entry.multiply_adds, entry.bytes}) {
      text += '\t' + std::to_string(number);
    }
    text += '\n';
  }
  return text.c_str();
}
