// Kernels whose blocks share data or wait for each other, rightly and wrongly.
#include <string.h>

#include "cases.h"

namespace ecornn {
namespace cuda {
namespace self_test {
namespace {

// Where block `b`'s 16 numbers lie in a round: two buffers take turns.
ECORNN_DEVICE Pointer<float> Slot(const Memory& memory, int64_t b, int round) {
  return Numbers(memory) + (round % 2 * BlockCount() + b) * 16;
}

ECORNN_DEVICE void Publish(const Memory& memory, int round) {
  if (ThreadIndex() < 16) {
    Slot(memory, BlockIndex(), round)[ThreadIndex()] =
        static_cast<float>(round * 100 + BlockIndex());
  }
}

// Sums the first numbers of all blocks.
ECORNN_DEVICE float SumOfAll(const Memory& memory, int round) {
  float sum = 0.0f;
  for (int64_t b = 0; b < BlockCount(); ++b) {
    const Vector16 v = LoadVectorL2<float>(Slot(memory, b, round));
    float first;
    memcpy(&first, &v, sizeof(first));
    sum += first;
  }
  return sum;
}

}  // namespace

// --- What is right --------------------------------------------------------

ECORNN_CASE(PingPong, 8, 64, 0, true) {
  float sum = 0.0f;
  for (int round = 0; round < 6; ++round) {
    Publish(memory, round);
    GridBarrier(memory, round + 1);
    sum += SumOfAll(memory, round);
  }
  Array(memory)[BlockIndex() * ThreadCount() + ThreadIndex()] = sum;
}
// Every thread fences what it wrote itself, before the block's barrier.
ECORNN_CASE(EachThreadFences, 8, 64, 0, true) {
  float sum = 0.0f;
  for (int round = 0; round < 6; ++round) {
    Publish(memory, round);
    DeviceFence(SyncPoint::kPublishFence);
    BlockBarrier(SyncPoint::kPublished);
    if (ThreadIndex() == 0) {
      AddToCounter(Counter(memory), 1);
      AwaitArrivals(memory, round + 1);
    }
    BlockBarrier(SyncPoint::kArrived);
    DeviceFence(SyncPoint::kArrivalFence);
    sum += SumOfAll(memory, round);
  }
  Array(memory)[BlockIndex() * ThreadCount() + ThreadIndex()] = sum;
}

// The upper halves of what all have read, by another type.
ECORNN_DEVICE void PublishHalves(const Memory& memory) {
  const auto halves =
      Global(reinterpret_cast<Half*>(memory.scratch), kScratchBytes / 2);
  if (ThreadIndex() == 0) halves[64 + BlockIndex() * 32 + 1] = Half();
}
ECORNN_CASE(HalvesAfterAllHaveRead, 8, 64, 0, true) {
  Publish(memory, 0);
  GridBarrier(memory, 1);
  SumOfAll(memory, 0);
  GridBarrier(memory, 2);
  PublishHalves(memory);
  GridBarrier(memory, 3);
  SumOfAll(memory, 0);
}

// --- What is missing ------------------------------------------------------

ECORNN_CASE(NoBarrierBeforePublishing, 4, 64, 0, true) {
  Publish(memory, 0);
  if (ThreadIndex() == 0) {
    DeviceFence(SyncPoint::kPublishFence);
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, 1);
    DeviceFence(SyncPoint::kArrivalFence);
  }
  BlockBarrier(SyncPoint::kArrived);
  SumOfAll(memory, 0);
}
ECORNN_CASE(NoFenceBeforeArrival, 4, 64, 0, true) {
  Publish(memory, 0);
  BlockBarrier(SyncPoint::kPublished);
  if (ThreadIndex() == 0) {
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, 1);
    DeviceFence(SyncPoint::kArrivalFence);
  }
  BlockBarrier(SyncPoint::kArrived);
  SumOfAll(memory, 0);
}
ECORNN_CASE(NoFenceAfterArrival, 4, 64, 0, true) {
  Publish(memory, 0);
  BlockBarrier(SyncPoint::kPublished);
  if (ThreadIndex() == 0) {
    DeviceFence(SyncPoint::kPublishFence);
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, 1);
  }
  BlockBarrier(SyncPoint::kArrived);
  SumOfAll(memory, 0);
}
ECORNN_CASE(NoBarrierAfterArrival, 4, 64, 0, true) {
  Publish(memory, 0);
  BlockBarrier(SyncPoint::kPublished);
  if (ThreadIndex() == 0) {
    DeviceFence(SyncPoint::kPublishFence);
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, 1);
    DeviceFence(SyncPoint::kArrivalFence);
  }
  SumOfAll(memory, 0);
}
ECORNN_CASE(NoWaiting, 4, 64, 0, true) {
  Publish(memory, 0);
  BlockBarrier(SyncPoint::kPublished);
  DeviceFence(SyncPoint::kPublishFence);
  BlockBarrier(SyncPoint::kArrived);
  SumOfAll(memory, 0);
}
// The next round's numbers replace what slower blocks have yet to read.
ECORNN_CASE(OneBuffer, 4, 64, 0, true) {
  for (int round = 0; round < 3; ++round) {
    Publish(memory, 0);
    GridBarrier(memory, round + 1);
    SumOfAll(memory, 0);
    BlockBarrier(SyncPoint::kPartsRead);
  }
}
ECORNN_CASE(HalvesBeforeAllHaveRead, 8, 64, 0, true) {
  Publish(memory, 0);
  GridBarrier(memory, 1);
  SumOfAll(memory, 0);
  BlockBarrier(SyncPoint::kPartsRead);
  PublishHalves(memory);
}
ECORNN_CASE(OwnCacheRead, 4, 64, 0, true) {
  Publish(memory, 0);
  GridBarrier(memory, 1);
  LoadVector<float>(Slot(memory, (BlockIndex() + 1) % BlockCount(), 0));
}

// --- Memory that is not for exchange --------------------------------------

ECORNN_CASE(ShareArray, 2, 32, 0, false) {
  if (ThreadIndex() == 0) Array(memory)[7] = 1.0f;
}
ECORNN_CASE(ReadSharedArray, 2, 1, 0, true) {
  if (BlockIndex() == 0) Array(memory)[7] = 1.0f;
  GridBarrier(memory, 1);
  if (BlockIndex() == 1) Array(memory)[8] = Array(memory)[7];
}
ECORNN_CASE(AllReadOneArray, 4, 32, 0, false) {
  Array(memory)[64 + BlockIndex() * 32 + ThreadIndex()] =
      Array(memory)[7] + Array(memory)[8];
}
ECORNN_CASE(ScratchWithoutOrder, 4, 32, 0, false) {
  Numbers(memory)[ThreadIndex()] = 1.0f;
}

// --- Waiting for ever -----------------------------------------------------

ECORNN_CASE(CounterNeverArrives, 2, 32, 0, true) {
  if (ThreadIndex() == 0) {
    AddToCounter(Counter(memory), 1);
    AwaitArrivals(memory, 2);
  }
  BlockBarrier(SyncPoint::kArrived);
}
ECORNN_CASE(HalfTheBlockAtABarrier, 1, 64, 0, false) {
  if (ThreadIndex() < 40) BlockBarrier(SyncPoint::kPartsReady);
}
ECORNN_CASE(TwoBarriersAtOnce, 1, 64, 0, false) {
  if (ThreadIndex() < 32) {
    BlockBarrier(SyncPoint::kPartsReady);
  } else {
    BlockBarrier(SyncPoint::kPartsRead);
  }
}
ECORNN_CASE(HalfTheWarpAtABarrier, 1, 64, 0, false) {
  if (ThreadIndex() % 32 < 16) WarpBarrier(SyncPoint::kStaged);
}
// Blocks of an ordinary launch need not be there at the same time.
ECORNN_CASE(WaitInOrdinaryLaunch, 64, 1, 0, false) {
  AddToCounter(Counter(memory), 1);
  AwaitArrivals(memory, 1);
}

}  // namespace self_test
}  // namespace cuda
}  // namespace ecornn
