// A stack for each thread of a kernel, and the switch between them and the
// scheduler. All fibers of a launch run on the operating-system thread that
// launched; only one launch runs at a time.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_FIBERS_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_FIBERS_H_

#include <stddef.h>

namespace ecornn {
namespace emulation {

class Fiber {
 public:
  // Makes Enter() call `body` on this stack; body must not return. A fiber that
  // is left for good needs no end: kernels hold nothing that wants freeing.
  void Start(unsigned char* stack, size_t bytes, void (*body)());
  // Runs the fiber until it leaves. Called by the scheduler.
  void Enter();
  // Back to the scheduler. Called on the fiber.
  void Leave();
  // Whether the stack was too small, after the fact.
  bool Overflowed() const;

 private:
  void* stack_pointer_ = nullptr;
  void* stack_bottom_ = nullptr;
};

// Memory for stacks, kept from launch to launch; what is never touched costs
// nothing.
class StackArea {
 public:
  static constexpr size_t kBytes = 64 * 1024;

  // Room for so many stacks; no fiber may be alive. False: no memory.
  bool Reserve(size_t count);
  // Gives the memory back if it is of more stacks than that.
  void Trim(size_t count);
  // Stacks start at different places of a page: equal ones would share few
  // cache sets.
  unsigned char* Stack(size_t index) const;
  size_t StackBytes(size_t index) const;
  ~StackArea() { Trim(0); }

 private:
  unsigned char* memory_ = nullptr;
  size_t count_ = 0;
};

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_FIBERS_H_
