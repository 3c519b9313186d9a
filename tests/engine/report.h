// Verdicts on cases, counted and printed group by group.
#ifndef TF_ECORNN_TESTS_ENGINE_REPORT_H_
#define TF_ECORNN_TESTS_ENGINE_REPORT_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include "array.h"

namespace ecornn {
namespace test {

// Whether one case holds; keeps the first thing that does not.
class Verdict {
 public:
  bool good() const { return failure_.empty(); }
  const std::string& failure() const { return failure_; }
  // The largest error that was tolerated, as a part of what may be.
  double worst() const { return worst_; }

  void Note(double error) { worst_ = std::fmax(worst_, error); }

  void Fail(const std::string& failure) {
    if (good()) failure_ = failure;
  }

  // Each |got - want| <= tolerance * max(1, largest finite |want| of the
  // array).
  template <class S>
  void Near(const Array<S>& got, const Array<double>& want, double tolerance) {
    double scale = 1.0;
    for (int64_t i = 0; i < want.size(); ++i) {
      if (std::isfinite(want[i])) scale = std::fmax(scale, std::abs(want[i]));
    }
    for (int64_t i = 0; i < want.size(); ++i) {
      const double g = static_cast<double>(got[i]);
      if (g == want[i] || (std::isnan(g) && std::isnan(want[i]))) continue;
      const double ratio = std::abs(g - want[i]) / (tolerance * scale);
      if (ratio <= 1.0) {
        Note(ratio);
        continue;
      }
      std::ostringstream message;
      message.precision(10);
      message << got.Element(i) << ": expected " << want[i] << ", got " << g
              << ", tolerance " << tolerance * scale;
      Fail(message.str());
      return;
    }
  }

  // Equal bit for bit; `which` says of what run `want` is.
  template <class T>
  void SameBits(const Array<T>& got, const Array<T>& want, const char* which) {
    if (!got.present() || !want.present()) return;
    for (int64_t i = 0; i < want.size(); ++i) {
      if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
      std::ostringstream message;
      message.precision(17);
      message << got.Element(i) << ": expected the bits of " << which << ", "
              << want[i] << ", got " << got[i];
      Fail(message.str());
      return;
    }
  }

 private:
  std::string failure_;
  double worst_ = 0.0;
};

class Report {
 public:
  void Begin(const std::string& group) {
    group_ = group;
    group_passed_ = group_failed_ = 0;
    worst_ = 0.0;
  }

  void Add(const std::string& label, const Verdict& verdict) {
    worst_ = std::fmax(worst_, verdict.worst());
    if (verdict.good()) {
      ++group_passed_;
      return;
    }
    // A fault seldom comes alone; the first few say enough.
    if (++group_failed_ <= 8) {
      std::printf("FAIL %s: %s: %s\n", group_.c_str(), label.c_str(),
                  verdict.failure().c_str());
    }
  }

  void End(const std::string& note = "") {
    passed_ += group_passed_;
    failed_ += group_failed_;
    std::string line = group_ + ": " + std::to_string(group_passed_) +
                       " passed, " + std::to_string(group_failed_) + " failed";
    if (!note.empty()) line += "; " + note;
    if (worst_ > 0.0) {
      char text[80];
      std::snprintf(text, sizeof(text), "; largest error %.2f of the tolerance",
                    worst_);
      line += text;
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  // Prints the closing line; the exit status.
  int Close() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  std::string group_;
  int group_passed_ = 0;
  int group_failed_ = 0;
  int passed_ = 0;
  int failed_ = 0;
  double worst_ = 0.0;
};

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_REPORT_H_
