#include "fibers.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace ecornn {
namespace emulation {
namespace {

constexpr uint64_t kCanary = 0x5eed5eed5eed5eed;
constexpr size_t kColours = 16;
constexpr size_t kColourBytes = 256;

}  // namespace

#if defined(__x86_64__)

// Saves what a called function must keep, stores the stack pointer and takes up
// another. glibc's swapcontext asks the kernel for the signal mask each time,
// which costs a hundred times as much.
extern "C" void ecornn_emulation_switch(void** save, void* load);
asm(R"(
  .text
  .p2align 4
  .hidden ecornn_emulation_switch
  .globl ecornn_emulation_switch
  .type ecornn_emulation_switch, @function
ecornn_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size ecornn_emulation_switch, .-ecornn_emulation_switch
)");

namespace {
void* scheduler_stack_pointer;
}

void Fiber::Start(unsigned char* stack, size_t bytes, void (*body)()) {
  stack_bottom_ = stack;
  memcpy(stack_bottom_, &kCanary, sizeof(kCanary));
  // From the top: the return address of `body`, none; `body` itself, to which
  // the switch returns; six registers.
  auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15);
  auto* words = reinterpret_cast<void**>(top) - 8;
  memset(words, 0, 8 * sizeof(void*));
  words[6] = reinterpret_cast<void*>(body);
  stack_pointer_ = words;
}

void Fiber::Enter() {
  ecornn_emulation_switch(&scheduler_stack_pointer, stack_pointer_);
}

void Fiber::Leave() {
  ecornn_emulation_switch(&stack_pointer_, scheduler_stack_pointer);
}

#else

namespace {
ucontext_t scheduler_context;
}

void Fiber::Start(unsigned char* stack, size_t bytes, void (*body)()) {
  stack_bottom_ = stack;
  memcpy(stack_bottom_, &kCanary, sizeof(kCanary));
  // The context itself lies on the stack, at its top.
  auto top = reinterpret_cast<uintptr_t>(stack + bytes) - sizeof(ucontext_t);
  auto* context = reinterpret_cast<ucontext_t*>(top & ~uintptr_t(63));
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = reinterpret_cast<unsigned char*>(context) - stack;
  context->uc_link = nullptr;
  makecontext(context, body, 0);
  stack_pointer_ = context;
}

void Fiber::Enter() {
  swapcontext(&scheduler_context, static_cast<ucontext_t*>(stack_pointer_));
}

void Fiber::Leave() {
  swapcontext(static_cast<ucontext_t*>(stack_pointer_), &scheduler_context);
}

#endif

bool Fiber::Overflowed() const {
  return memcmp(stack_bottom_, &kCanary, sizeof(kCanary)) != 0;
}

bool StackArea::Reserve(size_t count) {
  if (count <= count_) return true;
  Trim(0);
  void* memory = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const bool good = memory != MAP_FAILED;
  memory_ = good ? static_cast<unsigned char*>(memory) : nullptr;
  count_ = good ? count : 0;
  return good;
}

unsigned char* StackArea::Stack(size_t index) const {
  return memory_ + index * kBytes;
}

size_t StackArea::StackBytes(size_t index) const {
  return kBytes - index % kColours * kColourBytes;
}

void StackArea::Trim(size_t count) {
  if (count_ <= count) return;
  munmap(memory_, count_ * kBytes);
  memory_ = nullptr;
  count_ = 0;
}

}  // namespace emulation
}  // namespace ecornn
