#include "report.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <utility>

#include "../../cuda/sync_point.h"

namespace ecornn {
namespace emulation {
namespace {

// The compiler spells the enumerator out: "[with SyncPoint kPoint =
// ...::kStaged;
// ...]".
template <cuda::SyncPoint kPoint>
std::string NameOfPoint() {
  const std::string text = __PRETTY_FUNCTION__;
  const size_t end = text.find_first_of(";]", text.find("kPoint = "));
  const size_t begin = text.rfind("::", end) + 2;
  return text.substr(begin, end - begin);
}

template <int... kPoints>
std::vector<std::string> PointNames(std::integer_sequence<int, kPoints...>) {
  return {NameOfPoint<static_cast<cuda::SyncPoint>(kPoints)>()...};
}

// Its symbol's if that is visible, else the types of its arguments, which are
// in the launching template's signature: "... [with P = {...}; ...]".
std::string KernelName() {
  Dl_info info;
  if (dladdr(running.kernel.address, &info) != 0 &&
      info.dli_saddr == running.kernel.address) {
    int status = 1;
    char* plain =
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    const std::string name = status == 0 ? plain : info.dli_sname;
    free(plain);
    return name;
  }
  const std::string signature = running.kernel.signature;
  const size_t begin = signature.find("P = {");
  const size_t end = signature.find('}', begin);
  if (end == std::string::npos) return signature;
  return "of (" + signature.substr(begin + 5, end - begin - 5) + ")";
}

std::string Header() {
  return "kernel " + KernelName() + " (" +
         std::to_string(running.request.blocks) + " blocks of " +
         std::to_string(running.request.threads) + " threads, seed " +
         std::to_string(running.seed.given) + ", its launch " +
         std::to_string(running.seed.launch) + "): ";
}

// "0-3, 7" of sorted numbers, at most a few runs of them.
std::string Runs(const std::vector<int>& numbers) {
  std::string text;
  int runs = 0;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (++runs > 6) return text + ", ...";
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

const char* SyncPointName(int point) {
  static const std::vector<std::string> names =
      PointNames(std::make_integer_sequence<int, cuda::kSyncPointCount>());
  const bool known = point >= 0 && point < cuda::kSyncPointCount;
  return known ? names[point].c_str() : "";
}

std::string NameOf(Who who) {
  if (who & kSeveralWarps) return "threads of several warps";
  const int warp = WarpOf(who);
  if (who & kWholeWarp) return "lanes of warp " + std::to_string(warp);
  return "thread " + std::to_string(who & kIndexMask);
}

std::string NameOf(const Place& place) {
  if (place.call == nullptr) return "its start";
  std::string text = place.call;
  if (place.point >= 0)
    text += std::string("(") + SyncPointName(place.point) + ")";
  if (place.line == 0) return text;
  const char* slash = strrchr(place.file, '/');
  return text + " at " + (slash ? slash + 1 : place.file) + ":" +
         std::to_string(place.line);
}

std::string Report(const char* sentence) {
  const Thread& self = *current_thread;
  return Header() + "block " + std::to_string(self.block->index) + ", thread " +
         std::to_string(self.index) + " " + sentence + "; it last passed " +
         NameOf(self.place);
}

std::string ReportFormatted(const char* format, va_list arguments) {
  char sentence[2048];
  vsnprintf(sentence, sizeof(sentence), format, arguments);
  return Report(sentence);
}

std::string ReportWaiting(const char* sentence) {
  std::string text = Header() + sentence;
  int lines = 0;
  for (const Block* block : running.live) {
    std::map<std::string, std::vector<int>> where;
    for (const Thread& thread : block->threads) {
      const char* verb = thread.wait == Wait::kEnded     ? "ended"
                         : thread.wait == Wait::kNothing ? "could go on after "
                                                         : "wait at ";
      const std::string place =
          thread.wait == Wait::kEnded ? "" : NameOf(thread.place);
      where[verb + place].push_back(thread.index);
    }
    for (const auto& [what, threads] : where) {
      if (++lines > 12) return text + "\n  ...";
      text += "\n  block " + std::to_string(block->index) + ": " +
              std::to_string(threads.size()) + " threads (" + Runs(threads) +
              ") " + what;
    }
  }
  return text;
}

}  // namespace emulation
}  // namespace ecornn
