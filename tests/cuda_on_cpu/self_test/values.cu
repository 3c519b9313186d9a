// Kernels whose results a test compares: matrix products and conversions.
#include "cases.h"

namespace ecornn {
namespace cuda {
namespace self_test {

struct ProductArgs {
  const void* a;  // (m, k)
  const void* b;  // (k, n), or (n, k)
  float* c;       // (m, n), or (n, m)
  int64_t k;
};

// One warp's tile of c = a b, all of it in global memory.
template <int kM, int kN, int kDepth, class T, class LayoutB>
ECORNN_KERNEL MultiplyTiles(ProductArgs args) {
  using Held = typename emulation::wmma::Element<T>::Held;
  const auto a = Global(static_cast<const Held*>(args.a), kM * args.k);
  const auto b = Global(static_cast<const Held*>(args.b), kN * args.k);
  constexpr bool kRowMajor = std::is_same<LayoutB, wmma::row_major>::value;
  wmma::fragment<wmma::accumulator, kM, kN, kDepth, float> c;
  wmma::fill_fragment(c, 0.0f);
  for (int64_t k = 0; k < args.k; k += kDepth) {
    wmma::fragment<wmma::matrix_a, kM, kN, kDepth, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, kM, kN, kDepth, T, LayoutB> right;
    wmma::load_matrix_sync(left, a + k, args.k);
    wmma::load_matrix_sync(right, kRowMajor ? b + k * kN : b + k,
                           kRowMajor ? kN : args.k);
    wmma::mma_sync(c, left, right, c);
  }
  const Pointer<float> to = Global(args.c, kM * kN);
  if (kRowMajor) {
    wmma::store_matrix_sync(to, c, kN, wmma::mem_row_major);
  } else {
    wmma::store_matrix_sync(to, c, kM, wmma::mem_col_major);
  }
}

template <int kM, int kN, int kDepth, class T>
Error LaunchProduct(const ProductArgs& args, bool row_major) {
  BeginScratch(nullptr, 0);
  const auto kernel = row_major
                          ? &MultiplyTiles<kM, kN, kDepth, T, wmma::row_major>
                          : &MultiplyTiles<kM, kN, kDepth, T, wmma::col_major>;
  return Launch(kernel, {1, 32, 0, false}, nullptr, args);
}

struct ConvertArgs {
  const void* from;
  void* to;
  int64_t count;
};

struct ToFloat {
  template <class S>
  float operator()(S x) const {
    return Widen(x);
  }
};
template <class S>
struct ToStorage {
  S operator()(float x) const { return Narrow<S>(x); }
};
struct ToTensorFloat {
  float operator()(float x) const { return RoundToTensorFloat32(x); }
};

template <class From, class To, class Convert>
ECORNN_KERNEL ConvertAll(ConvertArgs args) {
  const auto from = Global(static_cast<const From*>(args.from), args.count);
  const auto to = Global(static_cast<To*>(args.to), args.count);
  for (int64_t i = ThreadIndex(); i < args.count; i += ThreadCount()) {
    to[i] = Convert()(from[i]);
  }
}

template <class From, class To, class Convert>
Error LaunchConversion(const ConvertArgs& args) {
  BeginScratch(nullptr, 0);
  return Launch(&ConvertAll<From, To, Convert>, {1, 64, 0, false}, nullptr,
                args);
}

}  // namespace self_test
}  // namespace cuda
}  // namespace ecornn

using namespace ecornn;        // NOLINT
using namespace ecornn::cuda;  // NOLINT

extern "C" {

// c = a b in tiles of (m, n), k deep. Types: 0 half, 1 bfloat16, 2 TF32. b is
// (k, n) and c (m, n) if row_major, else both are the other way round.
__attribute__((visibility("default"))) int self_test_product(
    int type, int m, int row_major, const void* a, const void* b, float* c,
    int64_t k) {
  const self_test::ProductArgs args = {a, b, c, k};
  using self_test::LaunchProduct;
  if (type == 2) {
    return LaunchProduct<16, 16, 8, wmma::precision::tf32>(args, row_major);
  }
  if (type == 1) {
    return m == 8 ? LaunchProduct<8, 32, 16, BFloat16Element>(args, row_major)
           : m == 16
               ? LaunchProduct<16, 16, 16, BFloat16Element>(args, row_major)
               : LaunchProduct<32, 8, 16, BFloat16Element>(args, row_major);
  }
  return m == 8    ? LaunchProduct<8, 32, 16, HalfElement>(args, row_major)
         : m == 16 ? LaunchProduct<16, 16, 16, HalfElement>(args, row_major)
                   : LaunchProduct<32, 8, 16, HalfElement>(args, row_major);
}

// Kinds: 0 half to float, 1 float to half, 2 bfloat16 to float, 3 float to
// bfloat16, 4 float to TF32.
__attribute__((visibility("default"))) int self_test_convert(int kind,
                                                             const void* from,
                                                             void* to,
                                                             int64_t count) {
  using namespace self_test;  // NOLINT
  const ConvertArgs args = {from, to, count};
  switch (kind) {
    case 0:
      return LaunchConversion<Half, float, ToFloat>(args);
    case 1:
      return LaunchConversion<float, Half, ToStorage<Half>>(args);
    case 2:
      return LaunchConversion<BFloat16, float, ToFloat>(args);
    case 3:
      return LaunchConversion<float, BFloat16, ToStorage<BFloat16>>(args);
    default:
      return LaunchConversion<float, float, ToTensorFloat>(args);
  }
}
}
