// Forward and backward results against the reference: sizes around the vector
// widths and tile heights with options at random, and all pairs of activations.
#include "reference.h"

#include <string>
#include <vector>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"
#include "scalar_activations.h"

namespace ecornn {
namespace test {
namespace {

constexpr int64_t kUnits[] = {1,  3,  4,  5,  7,  8,  9,  15, 16,
                              17, 31, 33, 63, 64, 65, 70, 130};
constexpr int64_t kBatches[] = {0, 1, 2, 3, 5, 6, 7, 12, 13, 37};
constexpr int64_t kSteps[] = {0, 1, 2, 5};
constexpr int kUnitsCount = sizeof(kUnits) / sizeof(kUnits[0]);
constexpr int kBatchesCount = sizeof(kBatches) / sizeof(kBatches[0]);

Activation AnyActivation(Random& random) {
  return static_cast<Activation>(random.Below(kActivationCount));
}

// The two counts have no common divisor: a round of kUnitsCount *
// kBatchesCount indices has each pair once.
Spec SweepSpec(int index, Random& random) {
  Spec spec;
  spec.units = kUnits[index % kUnitsCount];
  spec.batch = kBatches[index % kBatchesCount];
  const int steps = random.Below(8);
  spec.steps = kSteps[steps < 4 ? steps : steps < 6 ? 2 : 3];
  if (random.Chance(0.6)) {
    spec.activation = AnyActivation(random);
    spec.recurrent_activation = AnyActivation(random);
  }
  // Large sizes, for the product's sake, take little time in the scalar
  // reference; with kinks they never come clear of them.
  const int64_t elements = spec.batch * spec.units;
  while (spec.steps > 1 && elements * spec.steps * spec.units > 300000) {
    spec.steps = spec.steps == 5 ? 2 : 1;
  }
  while (elements * spec.steps > 1500 &&
         (HasKinks(spec.activation) || HasKinks(spec.recurrent_activation))) {
    spec.activation = AnyActivation(random);
    spec.recurrent_activation = AnyActivation(random);
  }
  DrawOptions(random, &spec);
  spec.seed = random.Next() >> 32;
  return spec;
}

template <class S>
void Compare(const Spec& spec, Report* report) {
  const Problem<S> problem = DrawComparable<S>(spec);
  const Reference want = RunReference(Widened(problem));
  for (Isa isa : AvailableIsas()) {
    SoloTeam team;
    Verdict verdict;
    const ForwardRun<S> forward = RunForward(isa, problem, team);
    CompareForward(problem, forward, want, &verdict);
    const BackwardRun<S> backward = RunBackward(isa, problem, forward, team);
    CompareBackward(problem, backward, want, &verdict);
    report->Add(std::string(IsaName(isa)) + " " + Describe(problem.spec),
                verdict);
  }
}

template <class S>
void Sweep(uint64_t seed, Report* report) {
  report->Begin(std::string("sizes and options, ") + TypeName<S>());
  Random random(seed);
  for (int i = 0; i < kUnitsCount * kBatchesCount; ++i) {
    Compare<S>(SweepSpec(i, random), report);
  }
  report->End();
}

template <class S>
void Pairs(uint64_t seed, Report* report) {
  report->Begin(std::string("pairs of activations, ") + TypeName<S>());
  constexpr int64_t kSomeUnits[] = {1, 5, 9, 17};
  Random random(seed);
  for (int i = 0; i < kActivationCount * kActivationCount; ++i) {
    Spec spec;
    spec.batch = 2 + i % 3;
    spec.steps = 3;
    spec.units = kSomeUnits[i % 4];
    DrawOptions(random, &spec);
    spec.activation = static_cast<Activation>(i / kActivationCount);
    spec.recurrent_activation = static_cast<Activation>(i % kActivationCount);
    spec.seed = random.Next() >> 32;
    Compare<S>(spec, report);
  }
  report->End();
}

}  // namespace

void TestReference(uint64_t seed, Report* report) {
  Sweep<float>(seed, report);
  Sweep<double>(seed + 1000, report);
  Pairs<float>(seed + 2000, report);
  Pairs<double>(seed + 3000, report);
}

}  // namespace test
}  // namespace ecornn
