// A row's results are the same bits whatever rows lie beside it.
#include <string>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"

namespace ecornn {
namespace test {
namespace {

constexpr int64_t kUnits[] = {1, 4, 9, 16, 31, 65, 70};
constexpr int64_t kBatches[] = {2, 3, 5, 7, 12, 13, 37, 80};

Spec RowsSpec(int64_t units, int64_t batch, Random& random) {
  Spec spec;
  spec.units = units;
  spec.batch = batch;
  spec.steps = units < 30 ? 4 : 2;
  DrawOptions(random, &spec);
  if (random.Chance(0.4)) {
    spec.activation = static_cast<Activation>(random.Below(kActivationCount));
    spec.recurrent_activation =
        static_cast<Activation>(random.Below(kActivationCount));
  }
  spec.seed = random.Next() >> 32;
  return spec;
}

template <class S>
void ComparePart(Isa isa, const Problem<S>& problem, const ForwardRun<S>& whole,
                 const BackwardRun<S>& back, int64_t first, int64_t count,
                 Verdict* verdict) {
  SoloTeam team;
  const Problem<S> part = SomeRows(problem, first, count);
  const ForwardRun<S> run = RunForward(isa, part, team, {true, true, false, 0});
  SameForward(run, SomeRows(whole, first, count), "the larger batch", verdict);
  SameBackward(RunBackward(isa, part, run, team, {false, false, 0}),
               SomeRows(back, first, count), "the larger batch", verdict);
}

template <class S>
void CompareRows(Isa isa, const Problem<S>& problem, Verdict* verdict) {
  SoloTeam team;
  const int64_t batch = problem.spec.batch;
  const ForwardRun<S> whole = RunForward(isa, problem, team);
  const BackwardRun<S> back = RunBackward(isa, problem, whole, team);
  for (int64_t row = 0; row < batch; ++row) {
    ComparePart(isa, problem, whole, back, row, 1, verdict);
  }
  // Cut in two: other tiles, other places in them.
  for (int64_t cut : {batch / 3, batch / 2}) {
    ComparePart(isa, problem, whole, back, 0, cut, verdict);
    ComparePart(isa, problem, whole, back, cut, batch - cut, verdict);
  }
}

template <class S>
void TestType(uint64_t seed, Report* report) {
  report->Begin(std::string("a row alone and among others, ") + TypeName<S>());
  Random random(seed);
  for (int64_t units : kUnits) {
    for (int64_t batch : kBatches) {
      const Problem<S> problem = Draw<S>(RowsSpec(units, batch, random));
      for (Isa isa : AvailableIsas()) {
        Verdict verdict;
        CompareRows(isa, problem, &verdict);
        report->Add(std::string(IsaName(isa)) + " " + Describe(problem.spec),
                    verdict);
      }
    }
  }
  report->End();
}

}  // namespace

void TestRows(uint64_t seed, Report* report) {
  TestType<float>(seed, report);
  TestType<double>(seed + 1, report);
}

}  // namespace test
}  // namespace ecornn
