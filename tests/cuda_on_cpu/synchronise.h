// Barriers, fences, counters, and what a warp's lanes do together.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_SYNCHRONISE_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_SYNCHRONISE_H_

#include "machine.h"

namespace ecornn {
namespace emulation {

// A SyncPoint that does nothing, or -1.
void SetDisabledPoint(int point);

void BlockBarrier(const Place& place);
bool BlockAny(bool here, const Place& place);
void WarpBarrier(const Place& place);
void DeviceFence(const Place& place);
void AddToCounter(unsigned* counter, unsigned n);
unsigned ReadCounter(const unsigned* counter);
// Comes back when all of the warp's lanes have called and one of them has done
// what they called for. Orders no memory.
void RunCollective(Collective* call);

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_SYNCHRONISE_H_
