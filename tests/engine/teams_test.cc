// Results are the same bits for every team and every order of its tasks.
#include "teams.h"

#include <string>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"

namespace ecornn {
namespace test {
namespace {

// The last ones have work for several threads by the engine's measure.
constexpr struct {
  int64_t batch, steps, units;
} kSizes[] = {{0, 2, 5},   {3, 0, 5},   {3, 2, 5},   {37, 5, 33},  {13, 3, 65},
              {20, 9, 24}, {7, 2, 130}, {5, 2, 260}, {210, 2, 210}};

template <class S>
void CompareTeam(Isa isa, const Problem<S>& problem, const ForwardRun<S>& alone,
                 const BackwardRun<S>& back, Team& team, const char* which,
                 Report* report) {
  Verdict verdict;
  const ForwardRun<S> run =
      RunForward(isa, problem, team, {true, true, false, 0x5a});
  SameForward(run, alone, "the caller alone", &verdict);
  SameBackward(RunBackward(isa, problem, run, team, {true, false, 0x5a}), back,
               "the caller alone", &verdict);
  report->Add(std::string(IsaName(isa)) + " " + which + " " +
                  std::to_string(team.size()) + " " + Describe(problem.spec),
              verdict);
}

template <class S>
void TestType(uint64_t seed, Report* report) {
  report->Begin(std::string("teams, ") + TypeName<S>());
  Random random(seed);
  for (const auto& size : kSizes) {
    for (int options = 0; options < 2; ++options) {
      Spec spec;
      spec.batch = size.batch;
      spec.steps = size.steps;
      spec.units = size.units;
      DrawOptions(random, &spec);
      if (options == 1) {
        spec.activation = Activation::kSilu;
        spec.recurrent_activation = Activation::kHardSigmoid;
        spec.recurrent_dropout = true;
      }
      spec.seed = random.Next() >> 32;
      const Problem<S> problem = Draw<S>(spec);
      for (Isa isa : AvailableIsas()) {
        SoloTeam solo;
        const ForwardRun<S> alone = RunForward(isa, problem, solo);
        const BackwardRun<S> back = RunBackward(isa, problem, alone, solo);
        for (int threads : {2, 3, 16}) {
          ThreadTeam team(threads, spec.seed);
          CompareTeam(isa, problem, alone, back, team, "threads", report);
        }
        ReorderingTeam reversed(16, ReorderingTeam::Order::kReversed, 0);
        CompareTeam(isa, problem, alone, back, reversed, "reversed", report);
        ReorderingTeam shuffled(16, ReorderingTeam::Order::kShuffled,
                                spec.seed);
        CompareTeam(isa, problem, alone, back, shuffled, "shuffled", report);
      }
    }
  }
  report->End();
}

}  // namespace

void TestTeams(uint64_t seed, Report* report) {
  TestType<float>(seed, report);
  TestType<double>(seed + 1, report);
}

}  // namespace test
}  // namespace ecornn
