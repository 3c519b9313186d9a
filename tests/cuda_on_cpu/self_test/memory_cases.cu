// Kernels that touch memory as they must not, and as they may.
#include "cases.h"

namespace ecornn {
namespace cuda {
namespace self_test {

// --- Bounds and alignment -------------------------------------------------

ECORNN_CASE(ReadPastTheEnd, 1, 32, 0, false) {
  const float x = Array(memory)[kCount - 31 + ThreadIndex()];
  Array(memory)[ThreadIndex()] = x;
}
ECORNN_CASE(WriteBeforeTheBegin, 1, 1, 0, false) { Array(memory)[-1] = 0.0f; }
ECORNN_CASE(PointPastTheEnd, 1, 1, 0, false) {
  // Arithmetic is free.
  Pointer<float> p = Array(memory) + kCount + 5;
  p -= kCount + 5;
  *p = p[1] + 1.0f;
  p[2] += 1.0f;
}
ECORNN_CASE(ReadNull, 1, 1, 0, false) {
  const Pointer<const float> nothing = Global<const float>(nullptr, 8);
  if (nothing == nullptr) Array(memory)[0] = nothing[0];
}
ECORNN_CASE(TakeTooMuch, 1, 1, 0, false) { Global(memory.array, kCount + 1); }
ECORNN_CASE(TakeTooMuchShared, 1, 1, 64, false) { Shared<float>(16, 13); }
ECORNN_CASE(ReadPastTheEndOfShared, 1, 1, 64, false) {
  Shared<float>(0, 4)[4] = 1.0f;
}
ECORNN_CASE(ReadVectorPastTheEnd, 1, 1, 0, false) {
  LoadVector<float>(Global<const float>(memory.array, 6) + 4);
}
ECORNN_CASE(MisalignedVector, 1, 1, 64, false) {
  StoreVector<float>(Shared<float>(0, 16) + 2, Vector16());
}
ECORNN_CASE(WriteByte, 1, 1, 0, false) {
  Global(memory.scratch, kScratchBytes)[1] = 1;
}

// --- Who wrote ------------------------------------------------------------

ECORNN_CASE(ReadUnwrittenShared, 2, 32, 256, false) {
  // What the block before left is not there for the next.
  const Pointer<float> shared = Shared<float>(0, 64);
  if (BlockIndex() >= 0) Array(memory)[BlockIndex()] = shared[ThreadIndex()];
}
ECORNN_CASE(ReadOthersShared, 64, 32, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  if (BlockIndex() % 2 == 0) {
    shared[ThreadIndex()] = 1.0f;
  } else {
    Array(memory)[BlockIndex() * 32 + ThreadIndex()] = shared[ThreadIndex()];
  }
}
ECORNN_CASE(ReadUnwrittenScratch, 1, 1, 0, false) {
  Array(memory)[0] = Numbers(memory)[kScratchNumbers - 1];
}
ECORNN_CASE(ReadPartlyWrittenScratch, 1, 1, 0, false) {
  const Pointer<float> end = Numbers(memory) + kScratchNumbers - 4;
  end[0] = end[1] = end[3] = 1.0f;
  LoadVector<float>(end);
}
ECORNN_CASE(ReadZeroedScratch, 1, 1, 0, false) {
  Array(memory)[0] = Numbers(memory)[0];
}

// --- Within a block -------------------------------------------------------

ECORNN_CASE(WriteOneForAll, 1, 64, 16, false) { Shared<float>(0, 4)[0] = 1.0f; }
ECORNN_CASE(ReadWithoutBarrier, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  shared[ThreadIndex()] = 1.0f;
  Array(memory)[ThreadIndex()] = shared[63 - ThreadIndex()];
}
ECORNN_CASE(ReadWithBarrier, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  for (int i = 0; i < 3; ++i) {
    shared[ThreadIndex()] = 1.0f;
    BlockBarrier(SyncPoint::kPartsReady);
    Array(memory)[ThreadIndex()] = shared[63 - ThreadIndex()];
    BlockBarrier(SyncPoint::kPartsRead);
  }
}
ECORNN_CASE(WriteWithoutBarrierAfterRead, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  shared[ThreadIndex()] = 1.0f;
  BlockBarrier(SyncPoint::kPartsReady);
  Array(memory)[ThreadIndex()] = shared[63 - ThreadIndex()];
  shared[ThreadIndex()] = 2.0f;
}
ECORNN_CASE(WarpBarrierAcrossWarps, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  shared[ThreadIndex()] = 1.0f;
  WarpBarrier(SyncPoint::kStaged);
  Array(memory)[ThreadIndex()] = shared[63 - ThreadIndex()];
}
ECORNN_CASE(WarpBarrierWithinWarps, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  const int warp = ThreadIndex() / 32 * 32;
  for (int i = 0; i < 3; ++i) {
    shared[ThreadIndex()] = 1.0f;
    WarpBarrier(SyncPoint::kStaged);
    Array(memory)[ThreadIndex()] = shared[warp + 31 - ThreadIndex() % 32];
    WarpBarrier(SyncPoint::kStageRead);
  }
}
// Numbers narrower than the emulation's cells at first are.
ECORNN_CASE(NarrowNeighbours, 1, 64, 256, false) {
  const Pointer<float> words = Shared<float>(0, 16);
  const Pointer<unsigned char> bytes = Shared<unsigned char>(0, 64);
  const auto halves = Global(reinterpret_cast<Half*>(memory.array), 2 * kCount);
  if (ThreadIndex() < 16) words[ThreadIndex()] = 1.0f;
  BlockBarrier(SyncPoint::kPartsReady);
  bytes[ThreadIndex()] = ThreadIndex() % 2;
  halves[ThreadIndex()] = Narrow<Half>(1.0f);
  BlockBarrier(SyncPoint::kPartsRead);
  halves[63 - ThreadIndex()] = Narrow<Half>(bytes[63 - ThreadIndex()]);
}
ECORNN_CASE(HalfOfAnothersWord, 1, 2, 64, false) {
  if (ThreadIndex() == 0) Shared<float>(0, 4)[1] = 1.0f;
  if (ThreadIndex() == 1) Shared<Half>(0, 8)[3] = Half();
}
ECORNN_CASE(HalfOfAnothersGlobalWord, 1, 2, 0, false) {
  if (ThreadIndex() == 0) Array(memory)[1] = 1.0f;
  if (ThreadIndex() == 1) {
    Global(reinterpret_cast<Half*>(memory.array), 8)[3] = Half();
  }
}
ECORNN_CASE(GlobalRaceInBlock, 1, 64, 0, false) {
  Array(memory)[ThreadIndex()] = 1.0f;
  Array(memory)[100] = Array(memory)[63 - ThreadIndex()];
}
ECORNN_CASE(AnyIsABarrier, 1, 64, 256, false) {
  const Pointer<float> shared = Shared<float>(0, 64);
  shared[ThreadIndex()] = 1.0f;
  const bool any = BlockAny(ThreadIndex() == 40, SyncPoint::kRowsMarked);
  const bool none = BlockAny(false, SyncPoint::kRowsMarked);
  Array(memory)[ThreadIndex()] =
      any && !none ? 3.0f * shared[63 - ThreadIndex()] : 0.0f;
}

}  // namespace self_test
}  // namespace cuda
}  // namespace ecornn
