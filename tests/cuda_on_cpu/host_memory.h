// What the launches of one operating-system thread know of their memory: the
// working memory, what of it was written, and the arrays that have names.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_MEMORY_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_MEMORY_H_

#include <stddef.h>

#include <string>
#include <vector>

namespace ecornn {
namespace emulation {

struct HostMemory {
  struct Array {
    const unsigned char* begin;
    size_t bytes;
    std::string name;
  };

  static HostMemory& OfThisThread();

  // The offset in working memory, past its end for other memory.
  size_t Offset(const void* address) const {
    return static_cast<const unsigned char*>(address) - scratch;
  }
  bool InScratch(const void* address) const {
    return Offset(address) < scratch_bytes;
  }
  // The named array that an address lies in, or null.
  const Array* ArrayOf(const void* address) const;
  // Whether all these bytes lie in the working memory, or in one array.
  bool Holds(const void* begin, size_t bytes) const;

  unsigned char* scratch = nullptr;
  size_t scratch_bytes = 0;
  std::vector<unsigned char> written;  // of each byte of the working memory
  std::vector<Array> arrays;
};

// Working memory of this operating-system thread's launches from now on;
// nothing in it counts as written.
void SetScratch(void* data, size_t bytes);
// The host has written working memory.
void MarkWritten(const void* data, size_t bytes);
// Whole arrays that kernels are given, by name: if any are named, all global
// memory must lie in one of them or in the working memory. Of this
// operating-system thread, until ForgetArrays.
void NameArray(const void* data, size_t bytes, const char* name);
void ForgetArrays();

// "shared memory + 64", "scratch + 1024", "outputs + 16" or a bare address.
std::string NameOf(const void* address);

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_HOST_MEMORY_H_
