// Kernels that use tensor cores rightly and wrongly.
#include "cases.h"

namespace ecornn {
namespace cuda {
namespace self_test {
namespace {

template <class T>
using A = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <class T>
using B = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major>;
using C = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
using TensorFloatA = wmma::fragment<wmma::matrix_a, 16, 16, 8,
                                    wmma::precision::tf32, wmma::row_major>;
using TensorFloatB = wmma::fragment<wmma::matrix_b, 16, 16, 8,
                                    wmma::precision::tf32, wmma::col_major>;
using TensorFloatC = wmma::fragment<wmma::accumulator, 16, 16, 8, float>;

// A tile of shared memory, ones, that all may read.
template <class T>
ECORNN_DEVICE Pointer<const T> OnesTile() {
  const Pointer<Half> tile = Shared<Half>(0, 512);
  for (int i = ThreadIndex(); i < 512; i += 32) tile[i] = Narrow<Half>(1.0f);
  WarpBarrier(SyncPoint::kStaged);
  return As<const T>(tile);
}

template <class T>
ECORNN_DEVICE void Multiply(A<T>& a, B<T>& b, C& c, Pointer<const T> tile) {
  wmma::load_matrix_sync(a, tile, 16);
  wmma::load_matrix_sync(b, tile, 16);
  wmma::fill_fragment(c, 0.0f);
  wmma::mma_sync(c, a, b, c);
}

}  // namespace

ECORNN_CASE(ProductOfOnes, 1, 32, 1024, false) {
  A<HalfElement> a;
  B<HalfElement> b;
  C c;
  Multiply(a, b, c, OnesTile<HalfElement>());
  for (int i = 0; i < c.num_elements; ++i) c.x[i] += c.x[i];
  wmma::store_matrix_sync(Array(memory), c, 16, wmma::mem_row_major);
}
ECORNN_CASE(LoadByHalfAWarp, 1, 32, 1024, false) {
  const Pointer<const HalfElement> tile = OnesTile<HalfElement>();
  A<HalfElement> a;
  if (ThreadIndex() < 16) wmma::load_matrix_sync(a, tile, 16);
}
ECORNN_CASE(LoadWithTwoStrides, 1, 32, 1024, false) {
  const Pointer<const HalfElement> tile = OnesTile<HalfElement>();
  A<HalfElement> a;
  wmma::load_matrix_sync(a, tile, ThreadIndex() == 3 ? 24 : 16);
}
ECORNN_CASE(TwoCallsInOneWarp, 1, 32, 1024, false) {
  const Pointer<const HalfElement> tile = OnesTile<HalfElement>();
  A<HalfElement> a;
  B<HalfElement> b;
  if (ThreadIndex() % 2 == 0) {
    wmma::load_matrix_sync(a, tile, 16);
  } else {
    wmma::load_matrix_sync(b, tile, 16);
  }
}
ECORNN_CASE(HalfAWarpOfThreads, 1, 48, 0, false) {
  C c;
  wmma::fill_fragment(c, 0.0f);
  wmma::store_matrix_sync(Array(memory), c, 16, wmma::mem_row_major);
}
ECORNN_CASE(MisalignedTile, 1, 32, 1024, false) {
  A<HalfElement> a;
  wmma::load_matrix_sync(a, OnesTile<HalfElement>() + 8, 16);
}
ECORNN_CASE(OddStride, 1, 32, 1024, false) {
  A<HalfElement> a;
  wmma::load_matrix_sync(a, OnesTile<HalfElement>(), 20);
}
ECORNN_CASE(TilePastTheEnd, 1, 32, 1024, false) {
  A<HalfElement> a;
  wmma::load_matrix_sync(a, OnesTile<HalfElement>() + 272, 16);
}
ECORNN_CASE(UnloadedFragment, 1, 32, 1024, false) {
  A<HalfElement> a;
  B<HalfElement> b;
  C c;
  Multiply(a, b, c, OnesTile<HalfElement>());
  C sums;
  wmma::mma_sync(sums, a, b, sums);
}
ECORNN_CASE(StagedWithoutBarrier, 1, 32, 1024, false) {
  const Pointer<Half> tile = Shared<Half>(0, 512);
  for (int i = ThreadIndex(); i < 512; i += 32) tile[i] = Narrow<Half>(1.0f);
  A<HalfElement> a;
  wmma::load_matrix_sync(a, As<const HalfElement>(tile), 16);
}
ECORNN_CASE(RestagedWithoutBarrier, 1, 32, 1024, false) {
  OnesTile<HalfElement>();
  A<HalfElement> a;
  wmma::load_matrix_sync(a, As<const HalfElement>(Shared<Half>(0, 512)), 16);
  OnesTile<HalfElement>();
}
ECORNN_CASE(StoredWithoutBarrier, 1, 32, 1024, false) {
  C c;
  wmma::fill_fragment(c, 2.0f);
  const Pointer<float> tile = Shared<float>(0, 256);
  wmma::store_matrix_sync(tile, c, 16, wmma::mem_row_major);
  Array(memory)[ThreadIndex()] = tile[ThreadIndex()];
}
ECORNN_CASE(TensorFloat, 1, 32, 0, false) {
  TensorFloatA a;
  TensorFloatB b;
  TensorFloatC c;
  wmma::fill_fragment(a, RoundToTensorFloat32(1.1f));
  wmma::fill_fragment(b, 1.0f);
  wmma::fill_fragment(c, 0.0f);
  wmma::mma_sync(c, a, b, c);
}
ECORNN_CASE(UnroundedTensorFloat, 1, 32, 0, false) {
  TensorFloatA a;
  TensorFloatB b;
  TensorFloatC c;
  wmma::fill_fragment(a, 1.1f);
  wmma::fill_fragment(b, 1.0f);
  wmma::fill_fragment(c, 0.0f);
  wmma::mma_sync(c, a, b, c);
}

}  // namespace self_test
}  // namespace cuda
}  // namespace ecornn
