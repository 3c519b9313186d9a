// Runs the kernels of the list, for the test that calls from Python.
#include <string.h>

#include "../host_memory.h"
#include "cases.h"

namespace {

using ecornn::cuda::self_test::Cases;
using ecornn::cuda::self_test::kCount;
using ecornn::cuda::self_test::kScratchBytes;

}  // namespace

#define ECORNN_SELF_TEST_API __attribute__((visibility("default")))

extern "C" {

ECORNN_SELF_TEST_API int self_test_cases() {
  return static_cast<int>(Cases().size());
}
ECORNN_SELF_TEST_API const char* self_test_case_name(int i) {
  return Cases()[i].name;
}

// Runs a case on an array of 1024 numbers, all 1, which it leaves in `array`;
// threads, shared memory and blocks other than the case's where positive.
// Returns the launch's error, or -1 for an unknown name.
ECORNN_SELF_TEST_API int self_test_run(const char* name, float* array,
                                       int64_t blocks, int threads,
                                       int64_t shared_bytes) {
  for (auto one : Cases()) {
    if (strcmp(one.name, name) != 0) continue;
    if (blocks > 0) one.shape.blocks = blocks;
    if (threads > 0) one.shape.threads = threads;
    if (shared_bytes > 0) one.shape.shared_bytes = shared_bytes;
    for (int64_t i = 0; i < kCount; ++i) array[i] = 1.0f;
    alignas(256) unsigned char scratch[kScratchBytes];
    ecornn::cuda::BeginScratch(scratch, kScratchBytes);
    ecornn::cuda::ZeroMemory(scratch, kScratchBytes / 2, nullptr);
    ecornn::emulation::NameArray(array, kCount * sizeof(float), "array");
    const int error =
        ecornn::cuda::Launch(one.kernel, one.shape, nullptr, {array, scratch});
    ecornn::emulation::ForgetArrays();
    return error;
  }
  return -1;
}

ECORNN_SELF_TEST_API const char* self_test_error_text(int error) {
  return ecornn::cuda::ErrorText(error);
}
}
