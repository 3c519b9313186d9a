// What two runs, or a run and the reference, must have in common.
#ifndef TF_ECORNN_TESTS_ENGINE_COMPARISONS_H_
#define TF_ECORNN_TESTS_ENGINE_COMPARISONS_H_

#include <cmath>
#include <limits>

#include "engine_runs.h"
#include "problem.h"
#include "reference.h"
#include "report.h"

namespace ecornn {
namespace test {

// Errors grow with the steps taken and, as those of random signs do, with the
// root of the length of a sum.
template <class S>
double Tolerance(const Spec& spec, int64_t sum_length) {
  return std::numeric_limits<S>::epsilon() * (spec.steps + 1) *
         (4.0 + std::sqrt(static_cast<double>(sum_length)));
}

template <class S>
void CompareForward(const Problem<S>& problem, const ForwardRun<S>& run,
                    const Reference& want, Verdict* verdict) {
  const double tolerance = Tolerance<S>(problem.spec, problem.spec.units);
  verdict->Near(run.last_output, want.last_output, tolerance);
  verdict->Near(run.final_h, want.final_h, tolerance);
  verdict->Near(run.final_c, want.final_c, tolerance);
  if (run.outputs.present()) {
    verdict->Near(run.outputs, want.outputs, tolerance);
  }
  if (!run.gates.present()) return;
  verdict->Near(run.previous_h, want.previous_h, tolerance);
  verdict->Near(run.previous_c, want.previous_c, tolerance);
  // The rest of `gates` is the backward pass's business, and judged by it.
  const int64_t units = problem.spec.units;
  for (int64_t i = 0; i < run.gates.size(); ++i) {
    const int64_t step = i / (kGates * units);
    if (problem.mask.present() && !problem.mask[step] &&
        !(run.gates[i] == S(0))) {
      verdict->Fail(run.gates.Element(i) +
                    ": expected 0 at a masked step, got " +
                    std::to_string(run.gates[i]));
      return;
    }
  }
}

template <class S>
void CompareBackward(const Problem<S>& problem, const BackwardRun<S>& run,
                     const Reference& want, Verdict* verdict) {
  const Spec& spec = problem.spec;
  const double tolerance = Tolerance<S>(spec, kGates * spec.units);
  verdict->Near(run.grad_gates, want.grad_gates, tolerance);
  verdict->Near(run.grad_initial_h, want.grad_initial_h, tolerance);
  verdict->Near(run.grad_initial_c, want.grad_initial_c, tolerance);
  if (run.grad_bias.present()) {
    verdict->Near(
        run.grad_bias, want.grad_bias,
        Tolerance<S>(spec, kGates * spec.units + spec.batch * spec.steps));
  }
  // Not small: zero.
  for (int64_t i = 0; i < run.grad_gates.size(); ++i) {
    const int64_t step = i / (kGates * spec.units);
    if (problem.mask.present() && !problem.mask[step] &&
        !(run.grad_gates[i] == S(0))) {
      verdict->Fail(run.grad_gates.Element(i) +
                    ": expected 0 at a masked step, got " +
                    std::to_string(run.grad_gates[i]));
      return;
    }
  }
}

// Of arrays that both runs have.
template <class S>
void SameForward(const ForwardRun<S>& got, const ForwardRun<S>& want,
                 const char* which, Verdict* verdict) {
  verdict->SameBits(got.last_output, want.last_output, which);
  verdict->SameBits(got.final_h, want.final_h, which);
  verdict->SameBits(got.final_c, want.final_c, which);
  verdict->SameBits(got.outputs, want.outputs, which);
  verdict->SameBits(got.gates, want.gates, which);
  verdict->SameBits(got.previous_h, want.previous_h, which);
  verdict->SameBits(got.previous_c, want.previous_c, which);
}

template <class S>
void SameBackward(const BackwardRun<S>& got, const BackwardRun<S>& want,
                  const char* which, Verdict* verdict) {
  verdict->SameBits(got.grad_gates, want.grad_gates, which);
  verdict->SameBits(got.grad_initial_h, want.grad_initial_h, which);
  verdict->SameBits(got.grad_initial_c, want.grad_initial_c, which);
  verdict->SameBits(got.grad_bias, want.grad_bias, which);
}

template <class S>
ForwardRun<S> SomeRows(const ForwardRun<S>& run, int64_t first, int64_t count) {
  return {run.last_output.Rows(first, count), run.final_h.Rows(first, count),
          run.final_c.Rows(first, count),     run.outputs.Rows(first, count),
          run.gates.Rows(first, count),       run.previous_h.Rows(first, count),
          run.previous_c.Rows(first, count)};
}

// Without grad_bias, which is a sum over rows.
template <class S>
BackwardRun<S> SomeRows(const BackwardRun<S>& run, int64_t first,
                        int64_t count) {
  return {run.grad_gates.Rows(first, count),
          run.grad_initial_h.Rows(first, count),
          run.grad_initial_c.Rows(first, count),
          {}};
}

template <class S>
const char* TypeName();
template <>
inline const char* TypeName<float>() {
  return "float";
}
template <>
inline const char* TypeName<double>() {
  return "double";
}

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_COMPARISONS_H_
