#include "synchronise.h"

#include <atomic>

#include "memory.h"
#include "statistics.h"

namespace ecornn {
namespace emulation {
namespace {

std::atomic<int> disabled_point{-1};

// A thread that has read a counter so often without a change waits for one.
constexpr int kIdleReads = 3;

bool IsDisabled(const Place& place) {
  return place.point == disabled_point.load(std::memory_order_relaxed);
}

void Pass(const Place& place) {
  current_thread->place = place;
  current_thread->idle_reads = 0;
}

Warp& OwnWarp() {
  return current_thread->block->warps[current_thread->index / kWarpLanes];
}

// Gives a thread knowledge of its own, the block's to begin with.
void Inform(Thread* thread) {
  if (thread->informed) return;
  Block* block = thread->block;
  thread->informed = true;
  thread->known = block->known;
  thread->pending = block->pending;
  thread->released = block->released;
  block->informed.push_back(thread->index);
}

// If each thread has fenced after its last access, all accesses before the
// barrier are covered, whoever made them.
void JoinFences(Block* block) {
  const bool fenced = block->fenced;
  block->fenced = false;
  if (!fenced) return;
  for (const Thread& thread : block->threads) {
    const uint32_t of_warp = block->warps[thread.index / kWarpLanes].exchanged;
    const uint32_t last =
        thread.exchanged > of_warp ? thread.exchanged : of_warp;
    if (last > thread.fenced && last >= block->barrier) return;
  }
  auto& fences = running.fences[block->index];
  fences.push_back({block->clock, block->clock + 1, 0, kNobody});
  block->released.Set(block->index, static_cast<uint32_t>(fences.size()),
                      running.fences.size());
}

// What any thread knows, all know from now on.
void OrderBlock(Block* block) {
  for (int index : block->informed) {
    Thread& thread = block->threads[index];
    block->known.Join(thread.known);
    block->pending.Join(thread.pending);
    block->released.Join(thread.released);
    thread.informed = false;
  }
  block->informed.clear();
  JoinFences(block);
  block->barrier = ++block->clock;
}

void OrderWarp(Warp* warp) {
  Thread* lanes = warp->block->threads.data() + warp->first;
  Thread* informed = nullptr;
  for (int i = 0; i < warp->lanes; ++i) {
    if (!lanes[i].informed) continue;
    if (informed == nullptr) {
      informed = &lanes[i];
      continue;
    }
    informed->known.Join(lanes[i].known);
    informed->pending.Join(lanes[i].pending);
    informed->released.Join(lanes[i].released);
  }
  for (int i = 0; informed != nullptr && i < warp->lanes; ++i) {
    Inform(&lanes[i]);
    lanes[i].known = informed->known;
    lanes[i].pending = informed->pending;
    lanes[i].released = informed->released;
  }
  warp->barrier = ++warp->block->clock;
}

void CheckSamePlace(const Thread& waiting, const Place& place) {
  if (waiting.place.point == place.point) return;
  Fail("comes to %s at %s:%d where others of its %s wait at another barrier",
       place.call, place.file, place.line,
       waiting.wait == Wait::kBlock ? "block" : "warp");
}

// Waits for all of the block's threads; one of them orders their accesses.
bool MeetBlock(bool vote, const Place& place, bool ordered) {
  Thread* self = current_thread;
  Block* block = self->block;
  for (const Thread& thread : block->threads) {
    if (block->arrived == 0) break;
    if (thread.wait != Wait::kBlock) continue;
    CheckSamePlace(thread, place);
    break;
  }
  Pass(place);
  self->vote = vote;
  if (++block->arrived < block->count) {
    WaitFor(Wait::kBlock);
    return self->vote;
  }
  block->arrived = 0;
  ++statistics.barriers;
  if (ordered) OrderBlock(block);
  bool any = false;
  for (const Thread& thread : block->threads) any = any || thread.vote;
  for (Thread& thread : block->threads) {
    thread.vote = any;
    if (&thread != self) MakeReady(&thread);
  }
  return any;
}

}  // namespace

void SetDisabledPoint(int point) { disabled_point = point; }

void BlockBarrier(const Place& place) {
  if (IsDisabled(place)) {
    Yield();
    return;
  }
  MeetBlock(false, place, true);
}

bool BlockAny(bool here, const Place& place) {
  // The answer needs all threads; without the barrier it still does, but tells
  // nothing of what they did.
  return MeetBlock(here, place, !IsDisabled(place));
}

void WarpBarrier(const Place& place) {
  if (IsDisabled(place)) {
    Yield();
    return;
  }
  Warp& warp = OwnWarp();
  Thread* lanes = current_thread->block->threads.data() + warp.first;
  for (int i = 0; warp.arrived != 0 && i < warp.lanes; ++i) {
    if (lanes[i].wait == Wait::kWarp) CheckSamePlace(lanes[i], place);
  }
  Pass(place);
  if (++warp.arrived < warp.lanes) {
    WaitFor(Wait::kWarp);
    return;
  }
  warp.arrived = 0;
  OrderWarp(&warp);
  for (int i = 0; i < warp.lanes; ++i) {
    if (&lanes[i] != current_thread) MakeReady(&lanes[i]);
  }
}

void DeviceFence(const Place& place) {
  if (IsDisabled(place)) return;
  Pass(place);
  Thread* self = current_thread;
  Block* block = self->block;
  Inform(self);
  self->known.Join(self->pending);
  auto& fences = running.fences[block->index];
  fences.push_back({block->clock, block->barrier, OwnWarp().barrier, Self()});
  self->released = self->known;
  self->released.Set(block->index, static_cast<uint32_t>(fences.size()),
                     running.fences.size());
  block->fenced = true;
  self->fenced = block->clock;
  // What the thread does from now on is not covered.
  ++block->clock;
}

void AddToCounter(unsigned* counter, unsigned n) {
  Thread* self = current_thread;
  self->idle_reads = 0;
  *counter += n;
  Counter& state = running.counters[reinterpret_cast<uintptr_t>(counter)];
  ++state.changes;
  state.knowledge.Join(self->informed ? self->released : self->block->released);
  for (Thread* waiting : state.waiting) MakeReady(waiting);
  state.waiting.clear();
  // Others may see it before the thread does anything else.
  if (running.Random(2) == 0) Yield();
}

unsigned ReadCounter(const unsigned* counter) {
  Thread* self = current_thread;
  Counter& state = running.counters[reinterpret_cast<uintptr_t>(counter)];
  if (self->counter != &state || self->counter_changes != state.changes) {
    self->idle_reads = 0;
  }
  self->counter = &state;
  if (self->idle_reads >= kIdleReads) {
    self->idle_reads = 0;
    self->place = {"ReadCounter, whose counter nobody changes", -1, "", 0};
    state.waiting.push_back(self);
    WaitFor(Wait::kCounter);
  } else {
    ++self->idle_reads;
    Yield();
  }
  self->counter_changes = state.changes;
  if (!state.knowledge.empty()) {
    Inform(self);
    self->pending.Join(state.knowledge);
  }
  return *counter;
}

void RunCollective(Collective* call) {
  Thread* self = current_thread;
  Warp& warp = OwnWarp();
  if (warp.lanes < kWarpLanes) {
    Fail("calls %s in a warp of %d lanes", call->name, warp.lanes);
  }
  self->collective = call;
  if (++warp.collective_arrived < kWarpLanes) {
    const Place before = self->place;
    self->place = {call->name, -1, "", 0};
    WaitFor(Wait::kCollective);
    self->place = before;
    return;
  }
  warp.collective_arrived = 0;
  Thread* lanes = self->block->threads.data() + warp.first;
  Collective* calls[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    calls[i] = lanes[i].collective;
    if (calls[i]->run == call->run) continue;
    Fail("calls %s where lane %d of its warp calls %s", call->name, i,
         calls[i]->name);
  }
  call->run(calls);
  for (int i = 0; i < kWarpLanes; ++i) {
    if (&lanes[i] != self) MakeReady(&lanes[i]);
  }
}

}  // namespace emulation
}  // namespace ecornn
