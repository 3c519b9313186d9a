// What a cell sees of one batch row at one step. Pointers that a cell has no
// use for are null.
#ifndef TF_ECORNN_CC_RECURRENCE_CELL_ROWS_H_
#define TF_ECORNN_CC_RECURRENCE_CELL_ROWS_H_

#include "../engine.h"
#include "../product.h"
#include "../storage.h"

namespace ecornn {
namespace ECORNN_TARGET {

template <class S>
struct ForwardRow {
  using C = ComputeType<S>;
  using P = ProductType<S>;

  const S* gates_x;  // (GU) this step's, or null: then x has a product
  const P* x;        // (F) this step's
  const C* h;        // (U) the state that enters
  C* h_next;         // (U) the state that leaves
  C* c;              // (U) the cell state, updated in place
  C* update_gate;    // (U) GRU, from one phase to the next
  P* phase_operand;  // (U) and the second phase's operand
  S* output;         // (U) or null
  S* gates;          // (GU), and (U) each: saved; all null when nothing is
  S* previous_h;
  C* previous_c;
  S* candidate;
  const S* dropout;  // (G, U) or null; then h * dropout[g] is gate g's operand
  // What the state is multiplied as where that is not h itself: one row, or
  // with dropout (G, stride); the entering ones, the leaving ones.
  const P* operands;
  P* operands_next;
};

template <class S>
struct BackwardRow {
  using C = ComputeType<S>;
  using P = ProductType<S>;

  const S* gates;  // (GU), and (U) each: saved
  const S* previous_h;
  const C* previous_c;
  const S* candidate;
  C* grad_c;          // (U) gradient of the cell state, updated in place
  S* grad_gates;      // (GU) this step's
  S* grad_candidate;  // (U)
  P* grad_z;  // (G, U in whole groups) the recurrent side, for the earlier
              // step's product
  const P* grad_z_later;  // the later step's, this product's operand
  const C* direct;        // (U) or null: part of the state's gradient
  C* direct_next;         // (U) that part for the earlier step
  const C* pending;       // (U) or null: gradient of outputs that repeat ours
  const S* grad_output;   // (U) or null
  const S* dropout;       // (G, U) or null
  C* grad_bias;  // null, or this row's group's sums: (GU), then what of the
                 // recurrent bias differs
};

// What a forward cell's phases share.
template <class S>
struct ForwardCell {
  using C = ComputeType<S>;
  using V = typename Simd<C>::Vector;

  int64_t units;
  int64_t operand_stride;   // from one gate's operand to the next one's
  const C* bias;            // (GU)
  const C* recurrent_bias;  // (GU) or null
  bool streams;             // saved numbers go past the caches

  // Whether they can: numbers of the saved types fill lines.
  static constexpr bool kCanStream = kVectorsAreLines && sizeof(S) == sizeof(C);

  template <int kGates>
  ECORNN_INLINE void PrefetchRow(const ForwardRow<S>& row, int first, int count,
                                 int64_t u) const {
    for (int g = first; g < first + count; ++g) {
      if (row.gates_x != nullptr) PrefetchRead(row.gates_x + g * units + u);
      if (row.gates != nullptr && !streams) {
        PrefetchWrite(row.gates + g * units + u);
      }
    }
    if (row.output != nullptr) PrefetchWrite(row.output + u);
    if (streams) return;
    if (row.previous_h != nullptr) PrefetchWrite(row.previous_h + u);
    if (row.previous_c != nullptr) PrefetchWrite(row.previous_c + u);
    if (row.candidate != nullptr) PrefetchWrite(row.candidate + u);
  }

  // Saves for the backward pass.
  template <class T, class Lanes>
  ECORNN_INLINE void Save(T* to, V v, Lanes lanes) const {
    if constexpr (kCanStream) {
      if (streams) {
        Stream(to, v);
        return;
      }
    }
    lanes.Store(to, v);
  }

  // The input side of a gate's pre-activation. `product` is that of x with the
  // gate's kernel where the row has no gates_x.
  template <class Lanes>
  ECORNN_INLINE V InputSide(const ForwardRow<S>& row, V product, int gate,
                            int64_t u, Lanes lanes) const {
    const int64_t i = gate * units + u;
    const V side =
        row.gates_x != nullptr ? lanes.Load(row.gates_x + i) : product;
    return side + lanes.Load(bias + i);
  }

  // The state that leaves the step, wherever it is wanted.
  template <int kGates, class Lanes>
  ECORNN_INLINE void StoreState(const ForwardRow<S>& row, int64_t u, V h,
                                Lanes lanes) const {
    lanes.Store(row.h_next + u, h);
    if (row.output != nullptr) lanes.Store(row.output + u, h);
    if (row.operands_next == nullptr) return;
    if (row.dropout == nullptr) {
      lanes.Store(row.operands_next + u, h);
      return;
    }
    for (int g = 0; g < kGates; ++g) {
      lanes.Store(row.operands_next + g * operand_stride + u,
                  h * lanes.Load(row.dropout + g * units + u));
    }
  }
};

// What a backward cell's phases share.
template <class S>
struct BackwardCell {
  using C = ComputeType<S>;
  using V = typename Simd<C>::Vector;

  int64_t units;
  int64_t gate_stride;  // of a row's grad_z

  template <int kGates>
  ECORNN_INLINE void PrefetchRow(const BackwardRow<S>& row, int64_t u) const {
    for (int g = 0; g < kGates; ++g) {
      PrefetchRead(row.gates + g * units + u);
      PrefetchWrite(row.grad_gates + g * units + u);
    }
    if (row.previous_h != nullptr) PrefetchRead(row.previous_h + u);
    if (row.previous_c != nullptr) PrefetchRead(row.previous_c + u);
    if (row.candidate != nullptr) PrefetchRead(row.candidate + u);
    if (row.grad_candidate != nullptr) PrefetchWrite(row.grad_candidate + u);
    if (row.grad_output != nullptr) PrefetchRead(row.grad_output + u);
  }

  // A gate's gradient on both sides, and in its group's bias sum.
  template <class Lanes>
  ECORNN_INLINE void StoreGradient(const BackwardRow<S>& row, int gate,
                                   int64_t u, V grad, Lanes lanes) const {
    lanes.Store(row.grad_z + gate * gate_stride + u, grad);
    StoreInputGradient(row, gate, u, grad, lanes);
  }

  // On the input side alone.
  template <class Lanes>
  ECORNN_INLINE void StoreInputGradient(const BackwardRow<S>& row, int gate,
                                        int64_t u, V grad, Lanes lanes) const {
    const int64_t i = gate * units + u;
    lanes.Store(row.grad_gates + i, grad);
    AddToBias(row, i, grad, lanes);
  }

  template <class Lanes>
  ECORNN_INLINE void AddToBias(const BackwardRow<S>& row, int64_t i, V grad,
                               Lanes lanes) const {
    if (row.grad_bias != nullptr) {
      lanes.Store(row.grad_bias + i, lanes.Load(row.grad_bias + i) + grad);
    }
  }
};

}  // namespace ECORNN_TARGET
}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_CELL_ROWS_H_
