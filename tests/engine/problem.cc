#include "problem.h"

#include <cmath>
#include <limits>

#include "reference.h"
#include "scalar_activations.h"

namespace ecornn {
namespace test {
namespace {

// How large the inputs may be for the state to stay moderate over a few steps.
struct Range {
  double gates;
  double shift;  // of gates_x
  double weights;
};

Range RangeFor(Activation activation, Activation recurrent_activation) {
  Range range = {2.5, 0.0, 1.5};
  for (Activation kind : {activation, recurrent_activation}) {
    switch (kind) {
      case Activation::kTanh:
      case Activation::kSigmoid:
      case Activation::kHardSigmoid:
      case Activation::kHardTanh:
      case Activation::kSoftsign:
        break;
      case Activation::kExponential:
      case Activation::kSoftplus:
        range = {0.5, -0.5, 0.3};
        break;
      default:
        if (range.weights > 0.7) range = {1.25, 0.0, 0.7};
    }
  }
  return range;
}

template <class S>
void FillUniform(Random& random, double low, double high, Array<S>* array) {
  for (int64_t i = 0; i < array->size(); ++i) {
    (*array)[i] = static_cast<S>(random.Between(low, high));
  }
}

// Rows of every kind: valid throughout, masked throughout, padded at either
// end, with gaps.
void FillMask(Random& random, int64_t batch, int64_t steps, Array<bool>* mask) {
  for (int64_t row = 0; row < batch; ++row) {
    const int kind = random.Below(6);
    const int bound = random.Below(static_cast<int>(steps) + 1);
    for (int64_t t = 0; t < steps; ++t) {
      (*mask)[row * steps + t] = kind == 0   ? true
                                 : kind == 1 ? false
                                 : kind == 2 ? t < bound
                                 : kind == 3 ? t >= bound
                                             : random.Chance(0.6);
    }
  }
}

template <class S>
Array<S> Gradient(Random& random, bool there, const char* name,
                  std::vector<int64_t> shape) {
  Array<S> array = Array<S>::Zeros(name, std::move(shape));
  if (there) FillUniform(random, -1.0, 1.0, &array);
  return array;
}

}  // namespace

void DrawOptions(Random& random, Spec* spec) {
  spec->reverse = random.Chance(0.5);
  spec->zero_output_for_mask = random.Chance(0.5);
  spec->bias = random.Chance(0.5);
  spec->mask = random.Chance(0.6);
  spec->reset = random.Chance(0.4);
  spec->recurrent_dropout = random.Chance(0.3);
  spec->grad_outputs = random.Chance(0.5);
  spec->grad_last_output = random.Chance(0.5);
  spec->grad_final_h = random.Chance(0.5);
  spec->grad_final_c = random.Chance(0.5);
}

std::string Describe(const Spec& spec) {
  std::string words =
      "B=" + std::to_string(spec.batch) + " T=" + std::to_string(spec.steps) +
      " U=" + std::to_string(spec.units) + " " + NameOf(spec.activation) + "/" +
      NameOf(spec.recurrent_activation);
  const auto add = [&words](bool there, const char* word) {
    if (there) words += std::string(" ") + word;
  };
  add(spec.reverse, "reverse");
  add(spec.zero_output_for_mask, "zero_output_for_mask");
  add(spec.bias, "bias");
  add(spec.mask, "mask");
  add(spec.reset, "reset");
  add(spec.recurrent_dropout, "recurrent_dropout");
  add(spec.grad_outputs, "d_outputs");
  add(spec.grad_last_output, "d_last");
  add(spec.grad_final_h, "d_h");
  add(spec.grad_final_c, "d_c");
  return words + " seed=" + std::to_string(spec.seed);
}

template <class S>
Sequence Problem<S>::sequence() const {
  Sequence sequence;
  sequence.cell = CellKind::kLstm;
  sequence.batch = spec.batch;
  sequence.steps = spec.steps;
  sequence.units = spec.units;
  sequence.reverse = spec.reverse;
  sequence.zero_output_for_mask = spec.zero_output_for_mask;
  sequence.activation = spec.activation;
  sequence.recurrent_activation = spec.recurrent_activation;
  return sequence;
}

template <class S>
Problem<S> Draw(const Spec& spec) {
  const int64_t b = spec.batch, t = spec.steps, u = spec.units, n = kGates * u;
  const Range range = RangeFor(spec.activation, spec.recurrent_activation);
  const double weight = range.weights / std::sqrt(static_cast<double>(u));
  Random random(spec.seed);
  Problem<S> p;
  p.spec = spec;
  p.gates_x = Array<S>("gates_x", {b, t, n});
  FillUniform(random, range.shift - range.gates, range.shift + range.gates,
              &p.gates_x);
  p.recurrent_kernel = Array<S>("recurrent_kernel", {u, n});
  FillUniform(random, -weight, weight, &p.recurrent_kernel);
  if (spec.bias) {
    p.bias = Array<S>("bias", {n});
    FillUniform(random, -0.5, 0.5, &p.bias);
  }
  p.initial_h = Array<S>("initial_h", {b, u});
  FillUniform(random, -0.8, 0.8, &p.initial_h);
  p.initial_c = Array<S>("initial_c", {b, u});
  FillUniform(random, -0.8, 0.8, &p.initial_c);
  if (spec.mask) {
    p.mask = Array<bool>("mask", {b, t});
    FillMask(random, b, t, &p.mask);
    for (int64_t i = 0; i < b * t * n; ++i) {
      if (!p.mask[i / n]) p.gates_x[i] = std::numeric_limits<S>::quiet_NaN();
    }
  }
  if (spec.reset) {
    p.reset = Array<bool>("reset", {b, t});
    for (int64_t i = 0; i < b * t; ++i) p.reset[i] = random.Chance(0.25);
  }
  if (spec.recurrent_dropout) {
    p.recurrent_dropout = Array<S>("recurrent_dropout", {b, kGates, u});
    for (int64_t i = 0; i < b * n; ++i) {
      p.recurrent_dropout[i] = static_cast<S>(random.Chance(0.7) ? 1 / 0.7 : 0);
    }
  }
  p.grad_last_output =
      Gradient<S>(random, spec.grad_last_output, "grad_last_output", {b, u});
  p.grad_final_h =
      Gradient<S>(random, spec.grad_final_h, "grad_final_h", {b, u});
  p.grad_final_c =
      Gradient<S>(random, spec.grad_final_c, "grad_final_c", {b, u});
  if (spec.grad_outputs) {
    p.grad_outputs = Gradient<S>(random, true, "grad_outputs", {b, t, u});
  }
  return p;
}

template <class S>
Problem<S> DrawComparable(Spec spec) {
  const double margin = 128.0 * std::numeric_limits<S>::epsilon();
  for (int attempt = 0;; ++attempt) {
    Problem<S> problem = Draw<S>(spec);
    const Reference reference = RunReference(Widened(problem));
    const bool good =
        reference.kink_distance > margin && reference.largest < 300.0;
    // The last one is used as it is: a size that never becomes good shows.
    if (good || attempt == 50) return problem;
    spec.seed += 0x100000000u;
  }
}

template <class S>
Problem<double> Widened(const Problem<S>& p) {
  return {p.spec,
          p.gates_x.template As<double>(),
          p.recurrent_kernel.template As<double>(),
          p.bias.template As<double>(),
          p.initial_h.template As<double>(),
          p.initial_c.template As<double>(),
          p.mask,
          p.reset,
          p.recurrent_dropout.template As<double>(),
          p.grad_last_output.template As<double>(),
          p.grad_final_h.template As<double>(),
          p.grad_final_c.template As<double>(),
          p.grad_outputs.template As<double>()};
}

template <class S>
Problem<S> SomeRows(const Problem<S>& p, int64_t first, int64_t count) {
  Problem<S> rows = {p.spec,
                     p.gates_x.Rows(first, count),
                     p.recurrent_kernel,
                     p.bias,
                     p.initial_h.Rows(first, count),
                     p.initial_c.Rows(first, count),
                     p.mask.Rows(first, count),
                     p.reset.Rows(first, count),
                     p.recurrent_dropout.Rows(first, count),
                     p.grad_last_output.Rows(first, count),
                     p.grad_final_h.Rows(first, count),
                     p.grad_final_c.Rows(first, count),
                     p.grad_outputs.Rows(first, count)};
  rows.spec.batch = count;
  return rows;
}

#define INSTANTIATE(S)                                 \
  template struct Problem<S>;                          \
  template Problem<S> Draw(const Spec&);               \
  template Problem<S> DrawComparable(Spec);            \
  template Problem<double> Widened(const Problem<S>&); \
  template Problem<S> SomeRows(const Problem<S>&, int64_t, int64_t);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace test
}  // namespace ecornn
