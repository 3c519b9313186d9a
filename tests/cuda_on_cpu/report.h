// The text of a fault: which thread of which kernel did what, and where.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_REPORT_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_REPORT_H_

#include <stdarg.h>

#include <string>

#include "machine.h"

namespace ecornn {
namespace emulation {

// Of the thread under way.
std::string Report(const char* sentence);
std::string ReportFormatted(const char* format, va_list arguments);
// Of all threads that wait.
std::string ReportWaiting(const char* sentence);

// "thread 5", "warp 2", "several warps".
std::string NameOf(Who who);
std::string NameOf(const Place& place);
// The enumerator's name, "" for an unknown number.
const char* SyncPointName(int point);

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_REPORT_H_
