// Huge, infinite and NaN inputs: they saturate or spread as the formulas say,
// and never to another row or across a masked step or a reset.
#include <limits>
#include <string>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"
#include "reference.h"

namespace ecornn {
namespace test {
namespace {

template <class S>
S AnyExtreme(Random& random) {
  using Limits = std::numeric_limits<S>;
  const S values[] = {Limits::infinity(),   Limits::max(), S(1e30), S(1e4),
                      Limits::denorm_min(), S(0)};
  const S value = values[random.Below(6)];
  return random.Chance(0.5) ? value : -value;
}

Spec SpecOf(Random& random, int64_t batch, int64_t units) {
  Spec spec;
  spec.batch = batch;
  spec.steps = 5;
  spec.units = units;
  DrawOptions(random, &spec);
  spec.seed = random.Next() >> 32;
  return spec;
}

// Other values in one step of a row, where it is not masked.
template <class S>
void SetStep(int64_t row, int64_t t, S value, Problem<S>* problem) {
  const int64_t count = kGates * problem->spec.units;
  if (problem->masked(row, t)) return;
  for (int64_t i = 0; i < count; ++i) {
    problem->gates_x[(row * problem->spec.steps + t) * count + i] = value;
  }
}

template <class S>
void AgainstReference(const Problem<S>& problem, const char* what,
                      Report* report) {
  const Reference want = RunReference(Widened(problem));
  for (Isa isa : AvailableIsas()) {
    SoloTeam team;
    Verdict verdict;
    const ForwardRun<S> forward = RunForward(isa, problem, team);
    CompareForward(problem, forward, want, &verdict);
    const BackwardRun<S> backward = RunBackward(isa, problem, forward, team);
    CompareBackward(problem, backward, want, &verdict);
    report->Add(
        std::string(IsaName(isa)) + " " + what + " " + Describe(problem.spec),
        verdict);
  }
}

// Gates that are all saturated, or all but.
template <class S>
void Saturation(Random& random, Report* report) {
  for (int i = 0; i < 24; ++i) {
    Spec spec = SpecOf(random, 3, 5 + 8 * (i % 3));
    if (i % 4 == 1) spec.recurrent_activation = Activation::kHardSigmoid;
    Problem<S> problem = Draw<S>(spec);
    for (int64_t k = 0; k < problem.gates_x.size(); ++k) {
      if (!problem.masked(0, k / (kGates * spec.units)) && random.Chance(0.7)) {
        problem.gates_x[k] = AnyExtreme<S>(random);
      }
    }
    AgainstReference(problem, "extreme gates_x", report);
  }
}

// One bad value: the rest of its row has NaN where the reference has, until a
// reset.
template <class S>
void BadValues(Random& random, Report* report) {
  const S nan = std::numeric_limits<S>::quiet_NaN();
  const S infinity = std::numeric_limits<S>::infinity();
  for (int i = 0; i < 16; ++i) {
    Spec spec = SpecOf(random, 4, 5 + 8 * (i % 3));
    Problem<S> problem = Draw<S>(spec);
    SetStep(1, random.Below(5), nan, &problem);
    AgainstReference(problem, "NaN in gates_x", report);
    problem = Draw<S>(spec);
    problem.initial_h[spec.units + 2] = i % 2 == 0 ? nan : infinity;
    AgainstReference(problem, "bad initial_h", report);
    problem = Draw<S>(spec);
    problem.initial_c[spec.units + 2] = i % 2 == 0 ? nan : -infinity;
    AgainstReference(problem, "bad initial_c", report);
  }
}

// All activations: whatever comes of one row, its neighbours do not feel it.
template <class S>
void Neighbours(Random& random, Report* report) {
  for (int i = 0; i < 3 * kActivationCount; ++i) {
    const auto kind = static_cast<Activation>(i / 3);
    Spec spec = SpecOf(random, 7, 5 + 8 * (i % 3));
    if (i % 3 != 1) spec.activation = kind;
    if (i % 3 != 2) spec.recurrent_activation = kind;
    const Problem<S> clean = Draw<S>(spec);
    Problem<S> problem = clean;
    for (int64_t row : {2, 3}) {
      for (int64_t t = 0; t < spec.steps; ++t) {
        SetStep(row, t,
                random.Chance(0.2) ? std::numeric_limits<S>::quiet_NaN()
                                   : AnyExtreme<S>(random),
                &problem);
      }
    }
    for (Isa isa : AvailableIsas()) {
      SoloTeam team;
      const ForwardRun<S> want = RunForward(isa, clean, team);
      const BackwardRun<S> want_back = RunBackward(isa, clean, want, team);
      const ForwardRun<S> got = RunForward(isa, problem, team);
      const BackwardRun<S> got_back = RunBackward(isa, problem, got, team);
      Verdict verdict;
      for (int64_t first : {0, 4}) {
        const int64_t count = first == 0 ? 2 : 3;
        SameForward(SomeRows(got, first, count), SomeRows(want, first, count),
                    "the run without bad rows", &verdict);
        SameBackward(SomeRows(got_back, first, count),
                     SomeRows(want_back, first, count),
                     "the run without bad rows", &verdict);
      }
      report->Add(std::string(IsaName(isa)) + " neighbours " + Describe(spec),
                  verdict);
    }
  }
}

template <class S>
void TestType(uint64_t seed, Report* report) {
  report->Begin(std::string("extreme values, ") + TypeName<S>());
  Random random(seed);
  Saturation<S>(random, report);
  BadValues<S>(random, report);
  Neighbours<S>(random, report);
  report->End();
}

}  // namespace

void TestExtremes(uint64_t seed, Report* report) {
  TestType<float>(seed, report);
  TestType<double>(seed + 1, report);
}

}  // namespace test
}  // namespace ecornn
