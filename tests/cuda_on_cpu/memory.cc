#include "memory.h"

#include <string.h>

#include <algorithm>

#include "host_memory.h"
#include "report.h"

namespace ecornn {
namespace emulation {
namespace {

// Of the launch under way.
HostMemory* host;

// Blocks are counted from 1.
using BlockNumber = int32_t;
constexpr BlockNumber kNoBlock = 0;
constexpr BlockNumber kSeveralBlocks = -1;

struct BlockRead {
  Access read;
  uint32_t found;  // a fence that covers it
  BlockNumber block;
};

// Some bytes of global memory.
struct Cell {
  BlockNumber write_block;
  Access write;
  uint32_t found;    // a fence that covers the write
  uint32_t readers;  // of several blocks: an entry of `reads`, from 1
  BlockRead read;
};

constexpr int kPairShift = 1;
constexpr size_t kPageCells = kPageBytes >> kPairShift;

struct Page {
  uintptr_t number;
  int shift;  // log2 of the bytes of its cells
  Cell cells[kPageCells];
};

// The pages that this launch has touched. Their memory is kept, up to a bound.
constexpr size_t kKeptPages = 4096;
std::vector<std::unique_ptr<Page>> pages;
size_t used_pages;
std::unordered_map<uintptr_t, Page*> page_table;
constexpr size_t kRecentPages = 1024;
Page* recent_pages[kRecentPages];
// Reads by several blocks of what they exchange.
std::vector<std::vector<BlockRead>> reads;
std::vector<uint32_t> free_reads;

Page* NewPage(uintptr_t number) {
  if (used_pages == pages.size()) pages.push_back(std::make_unique<Page>());
  Page* page = pages[used_pages++].get();
  page->number = number;
  page->shift = kWordShift;
  memset(static_cast<void*>(page->cells), 0,
         (kPageBytes >> kWordShift) * sizeof(Cell));
  page_table[number] = page;
  return page;
}

uint32_t NewReads() {
  if (free_reads.empty()) {
    reads.emplace_back();
    return static_cast<uint32_t>(reads.size());
  }
  const uint32_t entry = free_reads.back();
  free_reads.pop_back();
  return entry;
}

// Makes each large cell two small ones.
void Refine(Page* page) {
  for (size_t i = kPageCells; i-- > 0;) {
    page->cells[i] = page->cells[i / 2];
    if (i % 2 == 0 || page->cells[i].readers == 0) continue;
    // Its own copy of what several blocks read.
    const uint32_t readers = NewReads();
    reads[readers - 1] = reads[page->cells[i].readers - 1];
    page->cells[i].readers = readers;
  }
  page->shift = kPairShift;
}

Page* PageOf(uintptr_t address) {
  const uintptr_t number = address >> kPageBits;
  Page*& recent = recent_pages[number % kRecentPages];
  if (recent == nullptr || recent->number != number) {
    const auto known = page_table.find(number);
    recent = known != page_table.end() ? known->second : NewPage(number);
  }
  return recent;
}

// Calls use(cell, address) with each cell of some global memory.
template <class Use>
void ForCells(const unsigned char* begin, size_t bytes, const Use& use) {
  auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t end = address + bytes;
  while (address < end) {
    Page* page = PageOf(address);
    const uintptr_t next = (page->number + 1) << kPageBits;
    const uintptr_t stop = end < next ? end : next;
    constexpr uintptr_t kInWord = (1 << kWordShift) - 1;
    if (page->shift == kWordShift && ((address | stop) & kInWord) != 0) {
      Refine(page);
    }
    for (; address < stop;
         address = ((address >> page->shift) + 1) << page->shift) {
      use(page->cells[address % kPageBytes >> page->shift],
          reinterpret_cast<const unsigned char*>(address));
    }
  }
}

BlockNumber ThisBlock() {
  return static_cast<BlockNumber>(current_thread->block->index + 1);
}

uint32_t KnownFences(BlockNumber block) {
  const Thread& self = *current_thread;
  const Knowledge& known = self.informed ? self.known : self.block->known;
  return known[block - 1];
}

// Whether another block's access comes before those of now.
bool ComesBefore(BlockNumber block, Access access, uint32_t* found) {
  const auto& fences = running.fences[block - 1];
  return IsCovered(fences, KnownFences(block), access, found);
}

std::string Other(BlockNumber block, Access access) {
  return "block " + std::to_string(block - 1) + "'s " + NameOf(access.who);
}

[[noreturn]] void FailWithin(const unsigned char* address, const char* what,
                             Access other, const char* did) {
  const std::string name = NameOf(address);
  const std::string who = NameOf(other.who);
  Fail("%s %s, which %s of its block %s with no barrier between", what,
       name.c_str(), who.c_str(), did);
}

// What is missing between another block's access and one of now.
[[noreturn]] void FailBetween(const unsigned char* address, const char* what,
                              BlockNumber block, Access other,
                              const char* did) {
  const std::string name = NameOf(address);
  const std::string who = Other(block, other);
  if (!host->InScratch(address)) {
    Fail(
        "%s %s, which %s %s in the same launch; only working memory may be "
        "shared between blocks",
        what, name.c_str(), who.c_str(), did);
  }
  uint32_t found = 0;
  const auto& fences = running.fences[block - 1];
  const bool published =
      IsCovered(fences, static_cast<uint32_t>(fences.size()), other, &found);
  Fail("%s %s, which %s %s%s", what, name.c_str(), who.c_str(), did,
       published ? ": that block has fenced since, but this thread does not "
                   "know it from a counter and a fence of its own block after "
                   "reading that"
                 : ", and no fence of that block has come after that yet");
}

void CheckPreviousWrite(Cell& cell, const Moment& now, bool exchanged,
                        const unsigned char* address, const char* what) {
  if (cell.write_block == kNoBlock) return;
  if (cell.write_block == ThisBlock()) {
    if (!ComesBefore(cell.write, now)) {
      FailWithin(address, what, cell.write, "wrote");
    }
  } else if (!exchanged ||
             !ComesBefore(cell.write_block, cell.write, &cell.found)) {
    FailBetween(address, what, cell.write_block, cell.write, "wrote");
  }
}

void CheckPreviousRead(BlockRead& read, const Moment& now, bool exchanged,
                       const unsigned char* address) {
  if (read.block == kNoBlock) return;
  if (read.block == ThisBlock()) {
    if (!ComesBefore(read.read, now)) {
      FailWithin(address, "writes", read.read, "read");
    }
  } else if (read.block == kSeveralBlocks) {
    const std::string name = NameOf(address);
    Fail(
        "writes %s, which several blocks read in the same launch; only "
        "working memory may be shared between blocks",
        name.c_str());
  } else if (!exchanged || !ComesBefore(read.block, read.read, &read.found)) {
    FailBetween(address, "writes", read.block, read.read, "read");
  }
}

void NoteBlockRead(BlockRead* read, const Moment& now) {
  if (read->block == kNoBlock) {
    *read = {{now.clock, now.who}, 0, ThisBlock()};
  } else {
    AddRead(&read->read, now);
    read->found = 0;
  }
}

void NoteRead(Cell& cell, const Moment& now, bool exchanged) {
  if (cell.read.block == kNoBlock || cell.read.block == ThisBlock()) {
    NoteBlockRead(&cell.read, now);
  } else if (!exchanged) {
    cell.read.block = kSeveralBlocks;
  } else {
    if (cell.readers == 0) cell.readers = NewReads();
    auto& others = reads[cell.readers - 1];
    if (others.empty()) others.resize(running.request.blocks);
    NoteBlockRead(&others[ThisBlock() - 1], now);
  }
}

void NoteExchange(const Moment& now) {
  Thread& self = *current_thread;
  if (now.who & kWholeWarp) {
    self.block->warps[self.index / kWarpLanes].exchanged = now.clock;
  } else {
    self.exchanged = now.clock;
  }
}

void CheckReaders(Cell* cell, const Moment& now, const unsigned char* address) {
  auto& others = reads[cell->readers - 1];
  for (BlockRead& read : others) CheckPreviousRead(read, now, true, address);
  others.clear();
  free_reads.push_back(cell->readers);
}

[[noreturn]] void FailOwnCache(const Cell& cell, const unsigned char* address) {
  const std::string name = NameOf(address);
  const std::string other = Other(cell.write_block, cell.write);
  Fail(
      "reads %s, which %s wrote in this launch, through the multiprocessor's "
      "own cache, which may hold what was there before: LoadVectorL2 passes it "
      "by",
      name.c_str(), other.c_str());
}

void CheckWritten(const unsigned char* address, int64_t bytes) {
  const unsigned char* written = host->written.data() + host->Offset(address);
  for (int64_t i = 0; i < bytes; ++i) {
    if (written[i]) continue;
    const std::string name = NameOf(address + i);
    Fail("reads %s, which nobody wrote", name.c_str());
  }
}

}  // namespace

void StartMemory() {
  host = &HostMemory::OfThisThread();
  if (pages.size() > kKeptPages) pages.resize(kKeptPages);
  used_pages = 0;
  page_table.clear();
  std::fill(std::begin(recent_pages), std::end(recent_pages), nullptr);
  reads.clear();
  free_reads.clear();
}

void CheckGlobalExtent(const Extent& extent) {
  if (extent.begin == nullptr || extent.bytes == 0) return;
  if (host->arrays.empty()) return;
  if (extent.bytes > 0 && host->Holds(extent.begin, extent.bytes)) return;
  const std::string name = NameOf(extent.begin);
  Fail("takes %lld bytes of global memory from %s on, which has fewer",
       static_cast<long long>(extent.bytes), name.c_str());
}

void ReadGlobal(const unsigned char* address, int64_t bytes, Who who,
                Through through) {
  const bool exchanged = host->InScratch(address);
  const Moment now = Now(who);
  if (exchanged) {
    CheckWritten(address, bytes);
    NoteExchange(now);
  }
  ForCells(address, bytes, [&](Cell& cell, const unsigned char* where) {
    CheckPreviousWrite(cell, now, exchanged, where, "reads");
    if (through == Through::kOwnCache && cell.write_block != kNoBlock &&
        cell.write_block != ThisBlock()) {
      FailOwnCache(cell, where);
    }
    NoteRead(cell, now, exchanged);
  });
}

void WriteGlobal(const unsigned char* address, int64_t bytes, Who who) {
  if ((reinterpret_cast<uintptr_t>(address) | bytes) & 1) {
    Fail("writes %lld byte(s) of global memory: the emulation watches pairs",
         static_cast<long long>(bytes));
  }
  const bool exchanged = host->InScratch(address);
  const Moment now = Now(who);
  if (exchanged) {
    memset(host->written.data() + host->Offset(address), 1, bytes);
    NoteExchange(now);
  }
  ForCells(address, bytes, [&](Cell& cell, const unsigned char* where) {
    CheckPreviousWrite(cell, now, exchanged, where, "writes");
    CheckPreviousRead(cell.read, now, exchanged, where);
    if (cell.readers != 0) CheckReaders(&cell, now, where);
    // All that went before comes before whatever comes after this write.
    cell = {ThisBlock(), {now.clock, who}, 0, 0, {}};
  });
}

void CheckCounter(const unsigned char* address) {
  if (!host->InScratch(address)) {
    Fail("uses a counter outside the working memory");
  }
  CheckWritten(address, sizeof(unsigned));
}

void FailOutOfBounds(const Extent& extent, const unsigned char* address,
                     int64_t bytes, int element_bytes, const char* what) {
  if (extent.begin == nullptr) Fail("%s through a null pointer", what);
  const std::string name =
      extent.shared ? "shared memory" : NameOf(extent.begin);
  Fail("%s %lld element(s) from number %lld on of the %lld of %d bytes at %s",
       what, static_cast<long long>(bytes / element_bytes),
       static_cast<long long>((address - extent.begin) / element_bytes),
       static_cast<long long>(extent.bytes / element_bytes), element_bytes,
       name.c_str());
}

void RefineShared(Block* block, size_t page) {
  SharedCell* cells = block->cells.get() + page * kPageBytes;
  const int shift = block->shifts[page];
  for (size_t i = kPageBytes; i-- > 0;) cells[i] = cells[i >> shift];
  block->shifts[page] = 0;
}

void FailShared(const SharedCell& cell, const unsigned char* address,
                const Moment& now, bool write) {
  const Block& block = *current_thread->block;
  if (!write && cell.write.stamp < block.birth) {
    const std::string name = NameOf(address);
    Fail("reads %s, which nobody in the block wrote", name.c_str());
  }
  if (!ComesBefore(cell.write, now) || !write) {
    FailWithin(address, write ? "writes" : "reads", cell.write, "wrote");
  }
  FailWithin(address, "writes", cell.read, "read");
}

void FailMisaligned(const unsigned char* address, int alignment,
                    const char* what) {
  const std::string name = NameOf(address);
  Fail("%s %s, which is not aligned to %d bytes", what, name.c_str(),
       alignment);
}

}  // namespace emulation
}  // namespace ecornn
