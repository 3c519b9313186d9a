#include "machine.h"

#include <stdarg.h>

#include <algorithm>
#include <utility>

#include "memory.h"
#include "report.h"
#include "source_lines.h"

namespace ecornn {
namespace emulation {

Running running;
Thread* current_thread;

namespace {

StackArea stacks;

// Blocks of an ordinary launch that are on the machine at one time: enough for
// their order to vary.
constexpr int64_t kOrdinaryBlocks = 4;
// Clocks start anew before they could overflow within a block.
constexpr uint32_t kLastBirth = 1u << 30;
// What is kept from one launch to the next.
constexpr size_t kKeptBlocks = 32;
constexpr size_t kKeptStacks = kKeptBlocks * 256;

void RunThread() {
  running.kernel.call(running.kernel.arguments);
  Thread* self = current_thread;
  self->place = {"its end", -1, "", 0};
  ++self->block->ended;
  WaitFor(Wait::kEnded);
  __builtin_unreachable();
}

void StartWarps(Block* block) {
  const int count = block->count;
  block->warps.resize((count + kWarpLanes - 1) / kWarpLanes);
  for (size_t w = 0; w < block->warps.size(); ++w) {
    Warp& warp = block->warps[w];
    warp = Warp();
    warp.block = block;
    warp.first = static_cast<int>(w) * kWarpLanes;
    warp.lanes = std::min(kWarpLanes, count - warp.first);
    warp.queued = -1;
    warp.barrier = block->birth;
  }
}

void StartThreads(Block* block) {
  block->threads.resize(block->count);
  for (int i = 0; i < block->count; ++i) {
    Thread& thread = block->threads[i];
    thread = Thread();
    thread.block = block;
    thread.index = i;
    const size_t stack = block->slot * block->count + i;
    thread.fiber.Start(stacks.Stack(stack), stacks.StackBytes(stack),
                       RunThread);
    MakeReady(&thread);
  }
}

template <class T>
void Allocate(size_t count, std::unique_ptr<T[], Free>* memory) {
  memory->reset(static_cast<T*>(calloc(count, sizeof(T))));
}

void PrepareShared(Block* block, size_t bytes) {
  block->shared_bytes = bytes;
  if (block->shared_room < bytes || block->clock > kLastBirth) {
    block->shared_room = bytes;
    Allocate(bytes + kSharedAlignment, &block->shared);
    Allocate((bytes / kPageBytes + 1) * kPageBytes, &block->cells);
    block->clock = 0;
  }
  block->shifts.assign(bytes / kPageBytes + 1, kWordShift);
  const auto address = reinterpret_cast<uintptr_t>(block->shared.get());
  block->shared_begin =
      block->shared.get() + (-address & (kSharedAlignment - 1));
}

void StartBlock(size_t slot, int64_t index) {
  Block* block = running.slots[slot].get();
  block->slot = slot;
  block->index = index;
  block->count = running.request.threads;
  block->ended = block->arrived = 0;
  block->fenced = false;
  PrepareShared(block, running.request.shared_bytes);
  block->birth = block->barrier = ++block->clock;
  block->known.clear();
  block->pending.clear();
  block->released.clear();
  block->informed.clear();
  running.live.push_back(block);
  StartWarps(block);
  StartThreads(block);
}

void RemoveFromQueue(Warp* warp) {
  Warp* last = running.ready.back();
  running.ready[warp->queued] = last;
  last->queued = warp->queued;
  running.ready.pop_back();
  warp->queued = -1;
}

Warp* ChooseWarp() {
  Warp* warp = nullptr;
  for (int i = 0; i < 8; ++i) {
    warp = running.ready[running.Random(running.ready.size())];
    if (warp->block != running.starved) break;
  }
  return warp;
}

void Fault(std::string text) {
  running.failed = true;
  running.fault = std::move(text);
}

void RunLane(Warp* warp) {
  // From a random place on, the next lane that can run.
  const uint32_t ready = warp->ready;
  const unsigned turn = running.Random(kWarpLanes);
  const uint32_t turned = ready >> turn | (turn ? ready << (32 - turn) : 0);
  const unsigned lane = (__builtin_ctz(turned) + turn) % kWarpLanes;
  current_thread = &warp->block->threads[warp->first + lane];
  current_thread->fiber.Enter();
  const bool ended = current_thread->wait == Wait::kEnded;
  if (ended && current_thread->fiber.Overflowed() && !running.failed) {
    Fault(Report("needs more stack than the emulation has"));
  }
}

void RunWarp(Warp* warp) {
  // Mostly until none of its lanes can run, which is kind to the caches; at
  // times one lane alone gets ahead.
  const bool one_lane = running.Random(16) == 0;
  do {
    RunLane(warp);
  } while (warp->ready != 0 && !one_lane && !running.failed);
  if (warp->ready == 0) RemoveFromQueue(warp);
}

// A block whose threads can only wait for others that have ended.
void CheckEnded(const Block& block) {
  if (block.ended == 0 || block.arrived == 0) return;
  if (block.ended + block.arrived < block.count) return;
  Fault(ReportWaiting("a barrier that only some of a block's threads come to"));
}

void RunBlocks(const std::vector<int64_t>& order, size_t at_once) {
  std::vector<size_t> free_slots;
  for (size_t slot = 0; slot < at_once; ++slot) free_slots.push_back(slot);
  size_t next = 0;
  while (!running.failed) {
    while (next < order.size() && !free_slots.empty()) {
      StartBlock(free_slots.back(), order[next++]);
      free_slots.pop_back();
    }
    if (running.live.empty()) return;
    if (running.ready.empty()) {
      Fault(ReportWaiting("deadlock, no thread can go on"));
      return;
    }
    Warp* warp = ChooseWarp();
    Block* block = warp->block;
    RunWarp(warp);
    if (running.failed) return;
    CheckEnded(*block);
    if (block->ended < block->count) continue;
    free_slots.push_back(block->slot);
    running.live.erase(
        std::find(running.live.begin(), running.live.end(), block));
  }
}

// Far from those of neighbouring seeds and launches (splitmix64).
uint64_t Mixed(const Seed& seed) {
  uint64_t z = seed.given + (seed.launch + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t Running::Random(uint64_t below) {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return (random >> 11) % below;
}

void MakeReady(Thread* thread) {
  Warp& warp = thread->block->warps[thread->index / kWarpLanes];
  thread->wait = Wait::kNothing;
  warp.ready |= 1u << thread->index % kWarpLanes;
  if (warp.queued >= 0) return;
  warp.queued = static_cast<int>(running.ready.size());
  running.ready.push_back(&warp);
}

void WaitFor(Wait what) {
  Thread* self = current_thread;
  self->wait = what;
  Warp& warp = self->block->warps[self->index / kWarpLanes];
  warp.ready &= ~(1u << self->index % kWarpLanes);
  self->fiber.Leave();
}

void Yield() { current_thread->fiber.Leave(); }

void Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  running.fault = ReportFormatted(format, arguments);
  va_end(arguments);
  NoteCalls();
  running.failed = true;
  // The scheduler does not come back to a launch that failed.
  current_thread->fiber.Leave();
  __builtin_unreachable();
}

bool RunLaunch(const Kernel& kernel, const LaunchRequest& request,
               const Seed& seed) {
  running.kernel = kernel;
  running.request = request;
  running.seed = seed;
  running.random = Mixed(seed) | 1;
  running.failed = false;
  running.live.clear();
  running.ready.clear();
  running.counters.clear();
  running.fences.assign(request.blocks, {});

  std::vector<int64_t> order(request.blocks);
  for (int64_t i = 0; i < request.blocks; ++i) {
    order[i] = i;
    std::swap(order[i], order[running.Random(i + 1)]);
  }
  const size_t at_once = request.cooperative
                             ? order.size()
                             : std::min<size_t>(order.size(), kOrdinaryBlocks);
  while (running.slots.size() < at_once) {
    running.slots.push_back(std::make_unique<Block>());
  }
  if (!stacks.Reserve(at_once * request.threads)) {
    Fault("no memory for the stacks of an emulated launch");
    return false;
  }
  running.starved = running.slots[running.Random(at_once)].get();
  StartMemory();
  RunBlocks(order, at_once);
  current_thread = nullptr;
  if (running.failed) running.fault += NotedLines();
  if (running.slots.size() > kKeptBlocks) running.slots.resize(kKeptBlocks);
  stacks.Trim(kKeptStacks);
  return !running.failed;
}

}  // namespace emulation
}  // namespace ecornn
