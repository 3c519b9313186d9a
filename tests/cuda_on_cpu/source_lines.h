// Where in the source a fault happened, if ECORNN_EMULATION_LINES is set:
// asking binutils' addr2line takes longer than most tests.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_SOURCE_LINES_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_SOURCE_LINES_H_

#include <string>

namespace ecornn {
namespace emulation {

// Notes the calls under way, on the fiber of the fault.
void NoteCalls();
// "\n  at tile.h:83 in ..." for each of them, innermost first; not on a fiber.
std::string NotedLines();

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_SOURCE_LINES_H_
