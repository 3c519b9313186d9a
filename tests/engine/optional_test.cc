// Arrays that may be null, in all combinations, and arrays that may share
// memory.
#include <string>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"
#include "reference.h"

namespace ecornn {
namespace test {
namespace {

// What a pass must leave as it was.
template <class S>
void SameInputs(const Problem<S>& got, const Problem<S>& want,
                Verdict* verdict) {
  const char* which = "the input before the call";
  verdict->SameBits(got.gates_x, want.gates_x, which);
  verdict->SameBits(got.recurrent_kernel, want.recurrent_kernel, which);
  verdict->SameBits(got.bias, want.bias, which);
  verdict->SameBits(got.initial_h, want.initial_h, which);
  verdict->SameBits(got.initial_c, want.initial_c, which);
  verdict->SameBits(got.mask, want.mask, which);
  verdict->SameBits(got.reset, want.reset, which);
  verdict->SameBits(got.recurrent_dropout, want.recurrent_dropout, which);
  verdict->SameBits(got.grad_last_output, want.grad_last_output, which);
  verdict->SameBits(got.grad_final_h, want.grad_final_h, which);
  verdict->SameBits(got.grad_final_c, want.grad_final_c, which);
  verdict->SameBits(got.grad_outputs, want.grad_outputs, which);
}

// With and without each result; none of them may change the others.
template <class S>
void CompareResults(Isa isa, const Problem<S>& problem, Verdict* verdict) {
  const Problem<S> untouched = problem;
  const Reference want = RunReference(Widened(problem));
  SoloTeam team;
  const ForwardRun<S> full = RunForward(isa, problem, team);
  CompareForward(problem, full, want, verdict);
  for (bool outputs : {false, true}) {
    for (bool saves : {false, true}) {
      for (bool in_place : {false, true}) {
        if (in_place && !saves) continue;
        // Another poison: nothing may depend on what lay there.
        const ForwardChoice choice = {outputs, saves, in_place, 0x5a};
        SameForward(RunForward(isa, problem, team, choice), full,
                    in_place ? "the run not in place" : "the run with all",
                    verdict);
      }
    }
  }
  const ForwardRun<S> saved = full;
  const BackwardRun<S> back = RunBackward(isa, problem, full, team);
  CompareBackward(problem, back, want, verdict);
  for (bool bias : {false, true}) {
    for (bool in_place : {false, true}) {
      SameBackward(
          RunBackward(isa, problem, full, team, {bias, in_place, 0x5a}), back,
          in_place ? "the run not in place" : "the run with all", verdict);
    }
  }
  SameForward(full, saved, "what was saved before the backward pass", verdict);
  SameInputs(problem, untouched, verdict);
}

template <class S>
void TestCombinations(uint64_t seed, Report* report) {
  report->Begin(std::string("optional arrays, ") + TypeName<S>());
  for (Isa isa : AvailableIsas()) {
    for (int bits = 0; bits < 64; ++bits) {
      Spec spec;
      spec.batch = 4;
      spec.steps = 4;
      spec.units = 9 + bits % 3 * 8;
      spec.bias = bits & 1;
      spec.mask = bits & 2;
      spec.reset = bits & 4;
      spec.recurrent_dropout = bits & 8;
      spec.grad_outputs = bits & 16;
      spec.zero_output_for_mask = bits & 32;
      spec.reverse = bits % 3 == 0;
      // Both the built-in pair of functions and those chosen at run time, among
      // them one that keeps its argument for the backward pass.
      if (bits % 5 == 1) spec.activation = Activation::kSilu;
      if (bits % 5 == 2) spec.recurrent_activation = Activation::kGelu;
      if (bits % 5 == 3) spec.activation = Activation::kSoftsign;
      spec.seed = seed * 64 + bits;
      Verdict verdict;
      CompareResults(isa, Draw<S>(spec), &verdict);
      report->Add(std::string(IsaName(isa)) + " " + Describe(spec), verdict);
    }
  }
  report->End();
}

// Arrays without elements may come without memory.
template <class S>
void TestEmpty(uint64_t seed, Report* report) {
  report->Begin(std::string("empty arrays, ") + TypeName<S>());
  Random random(seed);
  for (int i = 0; i < 30; ++i) {
    Spec spec;
    spec.batch = i % 3 == 0 ? 3 : 0;
    spec.steps = i % 3 == 1 ? 3 : 0;
    spec.units = 9;
    DrawOptions(random, &spec);
    const Problem<S> problem = Draw<S>(spec);
    const Reference want = RunReference(Widened(problem));
    for (Isa isa : AvailableIsas()) {
      SoloTeam team;
      Verdict verdict;
      const bool in_place = i % 2 == 0;
      const ForwardRun<S> forward = RunForward(
          isa, problem, team, {true, true, in_place, kNanBytes, true});
      CompareForward(problem, forward, want, &verdict);
      const BackwardRun<S> backward = RunBackward(
          isa, problem, forward, team, {true, in_place, kNanBytes, true});
      CompareBackward(problem, backward, want, &verdict);
      report->Add(std::string(IsaName(isa)) + " " + Describe(spec), verdict);
    }
  }
  report->End();
}

}  // namespace

void TestOptional(uint64_t seed, Report* report) {
  TestCombinations<float>(seed, report);
  TestCombinations<double>(seed + 1, report);
  TestEmpty<float>(seed + 2, report);
  TestEmpty<double>(seed + 3, report);
}

}  // namespace test
}  // namespace ecornn
