#include "reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "scalar_activations.h"

namespace ecornn {
namespace test {
namespace {

using Vector = std::vector<double>;

// What one valid step leaves for the way back.
struct Step {
  Vector z;           // (4U) pre-activations i, f, c, o
  Vector previous_c;  // (U)
  Vector next_c;      // (U)
};

// One batch row.
class Row {
 public:
  Row(const Problem<double>& problem, int64_t row, Reference* result)
      : p_(problem),
        row_(row),
        steps_(problem.spec.steps),
        units_(problem.spec.units),
        r_(*result),
        trace_(steps_) {}

  void Forward() {
    Vector h(units_), c(units_), output(units_, 0.0);
    for (int64_t u = 0; u < units_; ++u) {
      h[u] = p_.initial_h[row_ * units_ + u];
      c[u] = p_.initial_c[row_ * units_ + u];
    }
    for (int64_t position = 0; position < steps_; ++position) {
      const int64_t t = TimeOf(position);
      if (ResetAt(t)) {
        h.assign(units_, 0.0);
        c.assign(units_, 0.0);
      }
      if (!p_.masked(row_, t)) {
        for (int64_t u = 0; u < units_; ++u) {
          r_.previous_h[At(t) * units_ + u] = h[u];
          r_.previous_c[At(t) * units_ + u] = c[u];
        }
        TakeStep(t, &h, &c);
        output = h;
      } else if (p_.spec.zero_output_for_mask) {
        output.assign(units_, 0.0);
      }
      for (int64_t u = 0; u < units_; ++u) {
        r_.outputs[At(position) * units_ + u] = output[u];
      }
    }
    for (int64_t u = 0; u < units_; ++u) {
      r_.last_output[row_ * units_ + u] = output[u];
      r_.final_h[row_ * units_ + u] = h[u];
      r_.final_c[row_ * units_ + u] = c[u];
    }
  }

  void Backward() {
    // grad_output[position]: of the output there, repetitions included.
    std::vector<Vector> grad_output(steps_, Vector(units_, 0.0));
    for (int64_t position = 0; position < steps_; ++position) {
      for (int64_t u = 0; u < units_; ++u) {
        double& grad = grad_output[position][u];
        if (p_.grad_outputs.present()) {
          grad += p_.grad_outputs[At(position) * units_ + u];
        }
        if (position == steps_ - 1) {
          grad += p_.grad_last_output[row_ * units_ + u];
        }
      }
    }
    Vector grad_h(units_), grad_c(units_);
    for (int64_t u = 0; u < units_; ++u) {
      grad_h[u] = p_.grad_final_h[row_ * units_ + u];
      grad_c[u] = p_.grad_final_c[row_ * units_ + u];
    }
    for (int64_t position = steps_ - 1; position >= 0; --position) {
      const int64_t t = TimeOf(position);
      const Vector& here = grad_output[position];
      if (!p_.masked(row_, t)) {
        for (int64_t u = 0; u < units_; ++u) grad_h[u] += here[u];
        StepGradient(t, &grad_h, &grad_c);
      } else if (!p_.spec.zero_output_for_mask && position > 0) {
        for (int64_t u = 0; u < units_; ++u) {
          grad_output[position - 1][u] += here[u];
        }
      }
      if (ResetAt(t)) {
        grad_h.assign(units_, 0.0);
        grad_c.assign(units_, 0.0);
      }
    }
    for (int64_t u = 0; u < units_; ++u) {
      r_.grad_initial_h[row_ * units_ + u] = grad_h[u];
      r_.grad_initial_c[row_ * units_ + u] = grad_c[u];
    }
  }

 private:
  int64_t TimeOf(int64_t position) const {
    return p_.spec.reverse ? steps_ - 1 - position : position;
  }
  int64_t At(int64_t step) const { return row_ * steps_ + step; }
  bool ResetAt(int64_t t) const {
    return p_.reset.present() && p_.reset[At(t)];
  }
  double Keep(int64_t gate, int64_t k) const {
    return p_.recurrent_dropout.present()
               ? p_.recurrent_dropout[(row_ * kGates + gate) * units_ + k]
               : 1.0;
  }
  double Weight(int64_t k, int64_t gate, int64_t u) const {
    return p_.recurrent_kernel[(k * kGates + gate) * units_ + u];
  }
  Activation KindOf(int64_t gate) const {
    return gate == 2 ? p_.spec.activation : p_.spec.recurrent_activation;
  }

  void Meet(double value) {
    r_.largest = std::fmax(r_.largest, std::abs(value));
  }
  double Activate(Activation kind, double x) {
    Meet(x);
    r_.kink_distance = std::fmin(r_.kink_distance, KinkDistance(kind, x));
    return ActivationValue(kind, x);
  }

  void TakeStep(int64_t t, Vector* h, Vector* c) {
    Step& step = trace_[t];
    step.z.assign(kGates * units_, 0.0);
    step.previous_c = *c;
    for (int64_t gate = 0; gate < kGates; ++gate) {
      for (int64_t u = 0; u < units_; ++u) {
        double z = p_.gates_x[(At(t) * kGates + gate) * units_ + u];
        if (p_.bias.present()) z += p_.bias[gate * units_ + u];
        for (int64_t k = 0; k < units_; ++k) {
          z += (*h)[k] * Keep(gate, k) * Weight(k, gate, u);
        }
        step.z[gate * units_ + u] = z;
      }
    }
    for (int64_t u = 0; u < units_; ++u) {
      double a[kGates];
      for (int64_t gate = 0; gate < kGates; ++gate) {
        a[gate] = Activate(KindOf(gate), step.z[gate * units_ + u]);
      }
      (*c)[u] = a[1] * (*c)[u] + a[0] * a[2];
      (*h)[u] = a[3] * Activate(p_.spec.activation, (*c)[u]);
      Meet((*h)[u]);
    }
    step.next_c = *c;
  }

  // From the gradients of the state that left the step to those of the state
  // that entered it.
  void StepGradient(int64_t t, Vector* grad_h, Vector* grad_c) {
    const Step& step = trace_[t];
    double* grad_z = &r_.grad_gates[At(t) * kGates * units_];
    for (int64_t u = 0; u < units_; ++u) {
      double a[kGates], slope[kGates];
      for (int64_t gate = 0; gate < kGates; ++gate) {
        const double z = step.z[gate * units_ + u];
        a[gate] = ActivationValue(KindOf(gate), z);
        slope[gate] = ActivationSlope(KindOf(gate), z);
      }
      const double c = step.next_c[u];
      const double grad_next =
          (*grad_c)[u] +
          (*grad_h)[u] * a[3] * ActivationSlope(p_.spec.activation, c);
      grad_z[u] = grad_next * a[2] * slope[0];
      grad_z[units_ + u] = grad_next * step.previous_c[u] * slope[1];
      grad_z[2 * units_ + u] = grad_next * a[0] * slope[2];
      grad_z[3 * units_ + u] =
          (*grad_h)[u] * ActivationValue(p_.spec.activation, c) * slope[3];
      (*grad_c)[u] = grad_next * a[1];
    }
    for (int64_t i = 0; i < kGates * units_; ++i) r_.grad_bias[i] += grad_z[i];
    for (int64_t k = 0; k < units_; ++k) {
      double sum = 0.0;
      for (int64_t gate = 0; gate < kGates; ++gate) {
        for (int64_t u = 0; u < units_; ++u) {
          sum += Keep(gate, k) * grad_z[gate * units_ + u] * Weight(k, gate, u);
        }
      }
      (*grad_h)[k] = sum;
      Meet(sum);
    }
  }

  const Problem<double>& p_;
  const int64_t row_;
  const int64_t steps_;
  const int64_t units_;
  Reference& r_;
  std::vector<Step> trace_;  // by input time; empty at masked steps
};

}  // namespace

Reference RunReference(const Problem<double>& problem) {
  const int64_t b = problem.spec.batch, t = problem.spec.steps;
  const int64_t u = problem.spec.units, n = kGates * u;
  const auto zeros = [](const char* name, std::vector<int64_t> shape) {
    return Array<double>::Zeros(name, std::move(shape));
  };
  Reference result;
  result.last_output = zeros("last_output", {b, u});
  result.final_h = zeros("final_h", {b, u});
  result.final_c = zeros("final_c", {b, u});
  result.outputs = zeros("outputs", {b, t, u});
  result.previous_h = zeros("previous_h", {b, t, u});
  result.previous_c = zeros("previous_c", {b, t, u});
  result.grad_gates = zeros("grad_gates", {b, t, n});
  result.grad_initial_h = zeros("grad_initial_h", {b, u});
  result.grad_initial_c = zeros("grad_initial_c", {b, u});
  result.grad_bias = zeros("grad_bias", {n});
  result.kink_distance = std::numeric_limits<double>::infinity();
  result.largest = 0.0;
  for (int64_t row = 0; row < b; ++row) {
    Row one(problem, row, &result);
    one.Forward();
    one.Backward();
  }
  return result;
}

}  // namespace test
}  // namespace ecornn
