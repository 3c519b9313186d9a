#include "source_lines.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace ecornn {
namespace emulation {
namespace {

constexpr int kMostCalls = 24;
void* calls[kMostCalls];
int call_count;

bool IsWanted() { return getenv("ECORNN_EMULATION_LINES") != nullptr; }

// One call may be several lines, functions having been inlined.
std::string LinesOf(const void* call) {
  Dl_info info;
  if (dladdr(call, &info) == 0) return "";
  // The call itself, not the instruction after it.
  const long offset = static_cast<const char*>(call) -
                      static_cast<const char*>(info.dli_fbase) - 1;
  char command[1024];
  snprintf(command, sizeof(command), "addr2line -Cfipse '%s' 0x%lx 2>/dev/null",
           info.dli_fname, offset);
  FILE* answer = popen(command, "r");
  if (answer == nullptr) return "";
  std::string lines;
  char line[512];
  while (fgets(line, sizeof(line), answer) != nullptr) {
    // The emulation's own lines say nothing of the kernel.
    if (strstr(line, "ecornn::emulation::") != nullptr) continue;
    line[strcspn(line, "\n")] = 0;
    if (strchr(line, '?') == nullptr) lines += std::string("\n  ") + line;
  }
  pclose(answer);
  return lines;
}

}  // namespace

void NoteCalls() { call_count = IsWanted() ? backtrace(calls, kMostCalls) : 0; }

std::string NotedLines() {
  std::string lines;
  for (int i = 0; i < call_count; ++i) lines += LinesOf(calls[i]);
  call_count = 0;
  return lines;
}

}  // namespace emulation
}  // namespace ecornn
