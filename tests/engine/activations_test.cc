// Each activation and its slope over the whole range of arguments, against the
// standard library in long double.
//
// They are read from the engine's results: with one step, no recurrent weights
// and the other gates at 0 or 1, a result is the function of one input.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "problem.h"
#include "random.h"
#include "scalar_activations.h"

namespace ecornn {
namespace test {
namespace {

// Where the function is applied: to the gates, the candidate, or the cell
// state.
enum class Place { kGate, kCandidate, kState };
constexpr Place kPlaces[] = {Place::kGate, Place::kCandidate, Place::kState};
constexpr const char* kPlaceNames[] = {"gate", "candidate", "state"};

// Errors tolerated in units in the last place: of the value where the error is
// relative, else of max(1, |value|), for what comes of a sum that cancels.
struct Bound {
  double units;
  bool relative;
};

Bound ValueBound(Activation kind) {
  switch (kind) {
    case Activation::kTanh:
      return {3.0, true};
    case Activation::kSigmoid:
    case Activation::kExponential:
      return {2.0, true};
    case Activation::kElu:
    case Activation::kSelu:
    case Activation::kSoftplus:
    case Activation::kSilu:
      return {4.0, true};
    case Activation::kGelu:
      return {2.0, false};
    default:
      return {1.0, true};
  }
}

// 1 - sigmoid keeps no relative accuracy and is multiplied by x in silu's
// slope.
Bound SlopeBound(Activation kind) {
  return {kind == Activation::kSilu ? 20.0 : 4.0,
          kind == Activation::kSoftsign};
}

// Absolute error that is always tolerated: the engine's exp may end a little
// above the least normal number, and its argument may be a factor. No more than
// the rounding of 1, though, however large the argument.
template <class S>
long double Floor(Activation kind, S x) {
  using Limits = std::numeric_limits<S>;
  const bool factor = kind == Activation::kSilu || kind == Activation::kGelu;
  const long double size =
      factor ? std::fmax(1.0L, std::abs(static_cast<long double>(x))) : 1.0L;
  return std::fmin(2.0L * Limits::min() * size,
                   static_cast<long double>(Limits::epsilon()));
}

// All magnitudes, then the range where functions bend, then the special values.
template <class S>
std::vector<S> Arguments() {
  using Limits = std::numeric_limits<S>;
  std::vector<S> x;
  Random random(7);
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent;
       e += sizeof(S) == 4 ? 1 : 4) {
    for (int i = 0; i < 4; ++i) {
      const S value = std::ldexp(static_cast<S>(random.Between(0.5, 1.0)), e);
      x.push_back(value);
      x.push_back(-value);
    }
  }
  for (double range : {1.0, 8.0, 110.0, 760.0}) {
    for (int i = 0; i < 2500; ++i) {
      x.push_back(static_cast<S>(random.Between(-range, range)));
    }
  }
  for (S value : {S(0), Limits::denorm_min(), Limits::min(), S(1), S(20), S(88),
                  S(709), S(1e30), Limits::max(), Limits::infinity()}) {
    x.push_back(value);
    x.push_back(-value);
  }
  x.push_back(Limits::quiet_NaN());
  return x;
}

// One argument per unit and row; rows filled up with zeros.
template <class S>
Problem<S> ProbeProblem(Activation kind, Place place, bool built_in,
                        const std::vector<S>& x) {
  Spec spec;
  spec.units = 37;
  spec.batch = (x.size() + spec.units - 1) / spec.units;
  spec.bias = false;
  spec.grad_outputs = spec.grad_last_output = false;
  // Either the one pair of functions that is built in, or any with linear.
  spec.activation = place != Place::kGate ? kind : Activation::kLinear;
  spec.recurrent_activation =
      place == Place::kGate ? kind : Activation::kLinear;
  if (built_in) {
    spec.activation = Activation::kTanh;
    spec.recurrent_activation = Activation::kSigmoid;
  }
  Problem<S> p = Draw<S>(spec);
  for (auto* zero : {&p.gates_x, &p.recurrent_kernel, &p.initial_h,
                     &p.initial_c, &p.grad_final_h, &p.grad_final_c}) {
    zero->FillBytes(0);
  }
  // z that give a gate of 1 and a candidate of 1, and a gate of 0.
  const S one = built_in ? S(100) : S(1);
  const S none = built_in ? S(-1000) : S(0);
  for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k) {
    const int64_t u = k % spec.units;
    S* z = &p.gates_x[(k / spec.units) * kGates * spec.units + u];
    S& input = z[0];
    S& forget = z[spec.units];
    S& candidate = z[2 * spec.units];
    S& output = z[3 * spec.units];
    switch (place) {
      case Place::kGate:
        input = x[k];
        candidate = one;
        p.grad_final_c[k] = S(1);
        break;
      case Place::kCandidate:
        input = one;
        candidate = x[k];
        p.grad_final_c[k] = S(1);
        break;
      case Place::kState:
        p.initial_c[k] = x[k];
        input = none;
        forget = one;
        output = one;
        p.grad_final_h[k] = S(1);
        break;
    }
  }
  return p;
}

template <class S>
long double UnitInLastPlace(long double value) {
  using Limits = std::numeric_limits<S>;
  const long double size =
      std::fmax(std::abs(value), static_cast<long double>(Limits::min()));
  return std::ldexp(1.0L, std::ilogb(size) - Limits::digits + 1);
}

template <class S>
void CompareValue(Activation kind, S x, S got, long double exact, Bound bound,
                  const char* what, Verdict* verdict) {
  const S want = static_cast<S>(exact);
  if (got == want || (std::isnan(got) && std::isnan(want))) return;
  // Such as 0 times infinity, where the limit would be as good.
  if (std::isinf(x) && std::isnan(want)) return;
  const long double base =
      bound.relative
          ? std::abs(static_cast<long double>(want))
          : std::fmax(1.0L, std::abs(static_cast<long double>(want)));
  const long double allowed =
      bound.units * UnitInLastPlace<S>(base) + Floor(kind, x);
  const long double error = std::abs(static_cast<long double>(got) - want);
  if (error <= allowed) {
    verdict->Note(static_cast<double>(error / allowed));
    return;
  }
  std::ostringstream message;
  message.precision(std::numeric_limits<S>::max_digits10);
  message << what << " at " << x << ": expected " << want << ", got " << got
          << ", " << static_cast<double>(error / UnitInLastPlace<S>(base))
          << " units in the last place, tolerance " << bound.units;
  verdict->Fail(message.str());
}

template <class S>
void CompareValues(Isa isa, Activation kind, Place place, bool built_in,
                   const std::vector<S>& x, Verdict* verdict) {
  const Problem<S> problem = ProbeProblem(kind, place, built_in, x);
  SoloTeam team;
  const ForwardRun<S> run = RunForward(isa, problem, team);
  const BackwardRun<S> back = RunBackward(isa, problem, run, team);
  const int64_t units = problem.spec.units;
  for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k) {
    const int64_t row = k / units, u = k % units;
    const S value = place == Place::kState ? run.final_h[k] : run.final_c[k];
    const long double exact = x[k];
    CompareValue(kind, x[k], value, ActivationValue(kind, exact),
                 ValueBound(kind), "value", verdict);
    const S* grad = &back.grad_gates[row * kGates * units + u];
    const S slope = place == Place::kGate        ? grad[0]
                    : place == Place::kCandidate ? grad[2 * units]
                                                 : back.grad_initial_c[k];
    // A NaN value has no slope to speak of; and 0 times the slope of the state
    // is in the candidate's, so it must be finite.
    if (std::isnan(value) || (place == Place::kCandidate &&
                              std::isinf(ActivationSlope<S>(kind, value)))) {
      continue;
    }
    CompareValue(kind, x[k], slope, ActivationSlope(kind, exact),
                 SlopeBound(kind), "slope", verdict);
  }
}

template <class S>
void TestType(Report* report) {
  const std::vector<S> x = Arguments<S>();
  report->Begin(std::string("activations, ") + TypeName<S>());
  for (Isa isa : AvailableIsas()) {
    for (int i = 0; i < kActivationCount; ++i) {
      const auto kind = static_cast<Activation>(i);
      for (Place place : kPlaces) {
        for (bool built_in : {false, true}) {
          const Activation pair =
              place == Place::kGate ? Activation::kSigmoid : Activation::kTanh;
          if (built_in && kind != pair) continue;
          Verdict verdict;
          CompareValues(isa, kind, place, built_in, x, &verdict);
          report->Add(std::string(IsaName(isa)) + " " + NameOf(kind) +
                          " of the " + kPlaceNames[static_cast<int>(place)] +
                          (built_in ? ", built in" : ""),
                      verdict);
        }
      }
    }
  }
  report->End(std::to_string(x.size()) + " arguments");
}

}  // namespace

void TestActivations(Report* report) {
  TestType<float>(report);
  TestType<double>(report);
}

}  // namespace test
}  // namespace ecornn
