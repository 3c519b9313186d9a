#include "host_memory.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "machine.h"

namespace ecornn {
namespace emulation {

HostMemory& HostMemory::OfThisThread() {
  static thread_local HostMemory memory;
  return memory;
}

const HostMemory::Array* HostMemory::ArrayOf(const void* address) const {
  const auto* byte = static_cast<const unsigned char*>(address);
  for (const Array& array : arrays) {
    if (byte >= array.begin && byte < array.begin + array.bytes) return &array;
  }
  return nullptr;
}

bool HostMemory::Holds(const void* begin, size_t bytes) const {
  if (InScratch(begin)) return bytes <= scratch_bytes - Offset(begin);
  const Array* array = ArrayOf(begin);
  if (array == nullptr) return false;
  const auto* byte = static_cast<const unsigned char*>(begin);
  return bytes <= array->bytes - (byte - array->begin);
}

void SetScratch(void* data, size_t bytes) {
  HostMemory& memory = HostMemory::OfThisThread();
  memory.scratch = static_cast<unsigned char*>(data);
  memory.scratch_bytes = bytes;
  memory.written.assign(bytes, 0);
}

void NameArray(const void* data, size_t bytes, const char* name) {
  if (data == nullptr) return;
  HostMemory::OfThisThread().arrays.push_back(
      {static_cast<const unsigned char*>(data), bytes, name});
}

void ForgetArrays() { HostMemory::OfThisThread().arrays.clear(); }

void MarkWritten(const void* data, size_t bytes) {
  HostMemory& memory = HostMemory::OfThisThread();
  const size_t offset = memory.Offset(data);
  if (offset >= memory.scratch_bytes) return;
  bytes = std::min(bytes, memory.scratch_bytes - offset);
  memset(memory.written.data() + offset, 1, bytes);
}

std::string NameOf(const void* address) {
  const auto* byte = static_cast<const unsigned char*>(address);
  if (current_thread != nullptr) {
    const Block& block = *current_thread->block;
    const size_t offset = byte - block.shared_begin;
    if (offset <= block.shared_bytes) {
      return "shared memory + " + std::to_string(offset);
    }
  }
  const HostMemory& memory = HostMemory::OfThisThread();
  if (memory.InScratch(address)) {
    return "scratch + " + std::to_string(memory.Offset(address));
  }
  if (const HostMemory::Array* array = memory.ArrayOf(address)) {
    return array->name + " + " + std::to_string(byte - array->begin);
  }
  char text[32];
  snprintf(text, sizeof(text), "address %p", address);
  return text;
}

}  // namespace emulation
}  // namespace ecornn
