#include "host.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <string>

#include "../../cuda/device.h"
#include "../../cuda/sync_point.h"
#include "emulation_api.h"
#include "host_memory.h"
#include "report.h"
#include "statistics.h"
#include "synchronise.h"
#include "tensor_core.h"

namespace ecornn {
namespace emulation {

Statistics statistics;

namespace {

// cudaError_t's.
enum ErrorCode {
  kSuccess = 0,
  kInvalidValue = 1,
  kInvalidConfiguration = 9,
  kInvalidDevice = 101,
  kLaunchFailure = 719,
  kCooperativeLaunchTooLarge = 720,
  kNotSupported = 801,
};

constexpr cuda::Device kH200 = {0, 9, 0, 132, 227 * 1024, true};
constexpr int kMaxThreads = 1024;

// Of a multiprocessor. Kernels are taken to need this many registers a thread.
constexpr int kRegisters = 65536;
constexpr int kRegistersOfThread = 128;

uint64_t FirstSeed() {
  const char* given = getenv("ECORNN_EMULATION_SEED");
  if (given != nullptr) return strtoull(given, nullptr, 10);
  return std::random_device{}();
}

int FirstDisabledPoint() {
  const char* given = getenv("ECORNN_EMULATION_DISABLE");
  if (given == nullptr) return -1;
  for (int i = 0; i < cuda::kSyncPointCount; ++i) {
    if (strcmp(given, SyncPointName(i)) == 0) return i;
  }
  return atoi(given);
}

struct Host {
  std::mutex running;  // held by the launch under way
  std::mutex state;    // of what follows
  cuda::Device device = kH200;
  uint64_t seed = FirstSeed();
  uint64_t launches = 0;  // with this seed
  std::string fault;

  Host() { SetDisabledPoint(FirstDisabledPoint()); }
};

Host& TheHost() {
  static Host host;
  return host;
}

cuda::Device TheDevice() {
  Host& host = TheHost();
  std::lock_guard<std::mutex> lock(host.state);
  return host.device;
}

// The text of the calling thread's last fault.
std::string& FaultOfThisThread() {
  static thread_local std::string text;
  return text;
}

Seed NextSeed() {
  Host& host = TheHost();
  std::lock_guard<std::mutex> lock(host.state);
  return {host.seed, host.launches++};
}

int CheckLaunch(const LaunchRequest& request) {
  if (request.blocks < 1 || request.blocks > INT_MAX || request.threads < 1 ||
      request.threads > kMaxThreads) {
    return kInvalidConfiguration;
  }
  const int error = CheckSharedBytes(request.shared_bytes);
  if (error != kSuccess || !request.cooperative) return error;
  const cuda::Device device = TheDevice();
  if (!device.cooperative_launch) return kNotSupported;
  int blocks = 0;
  BlocksPerMultiprocessor(request.threads, request.shared_bytes, &blocks);
  const bool fits = request.blocks <= int64_t(blocks) * device.multiprocessors;
  return fits ? kSuccess : kCooperativeLaunchTooLarge;
}

}  // namespace

int CheckOrdinal(int ordinal) {
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}

int CheckSharedBytes(size_t bytes) {
  return bytes <= TheDevice().shared_per_block ? kSuccess : kInvalidValue;
}

int BlocksPerMultiprocessor(int threads, size_t shared_bytes, int* blocks) {
  const cuda::Device device = TheDevice();
  *blocks = 0;
  if (threads < 1 || threads > kMaxThreads) return kInvalidConfiguration;
  if (shared_bytes > device.shared_per_block) return kInvalidValue;
  // From compute capability 8 on, the system takes 1 KB of each block.
  const size_t reserved = device.major >= 8 ? 1024 : 0;
  const size_t shared = device.shared_per_block + reserved;
  const size_t each = std::max<size_t>(shared_bytes + reserved, 1);
  const int by_shared = static_cast<int>(std::min<size_t>(shared / each, 32));
  const int at_most = device.major == 7 && device.minor == 5 ? 1024 : 2048;
  const int by_threads = at_most / threads;
  const int by_registers = kRegisters / (kRegistersOfThread * threads);
  *blocks = std::max(1, std::min({by_shared, by_threads, by_registers}));
  return kSuccess;
}

int Zero(void* data, size_t bytes) {
  std::lock_guard<std::mutex> lock(TheHost().running);
  memset(data, 0, bytes);
  MarkWritten(data, bytes);
  return kSuccess;
}

int LaunchKernel(const Kernel& kernel, const LaunchRequest& request) {
  const int error = CheckLaunch(request);
  if (error != kSuccess) return error;
  Host& host = TheHost();
  const Seed seed = NextSeed();
  std::lock_guard<std::mutex> lock(host.running);
  ++statistics.launches;
  statistics.cooperative_launches += request.cooperative;
  statistics.blocks += request.blocks;
  if (RunLaunch(kernel, request, seed)) return kSuccess;
  FaultOfThisThread() = running.fault;
  std::lock_guard<std::mutex> state(host.state);
  host.fault = running.fault;
  return kLaunchFailure;
}

namespace wmma {

void CheckTensorCore(bool ampere) {
  const cuda::Device device = TheDevice();
  if (device.major >= (ampere ? 8 : 7)) return;
  Fail(
      "multiplies a type that the tensor cores of compute capability %d.%d "
      "do not have",
      device.major, device.minor);
}

}  // namespace wmma
}  // namespace emulation

namespace cuda {

const char* ErrorText(Error error) {
  switch (error) {
    case emulation::kSuccess:
      return "no error";
    case emulation::kInvalidValue:
      return "invalid argument";
    case emulation::kInvalidConfiguration:
      return "invalid configuration argument";
    case emulation::kInvalidDevice:
      return "invalid device ordinal";
    case emulation::kLaunchFailure:
      return emulation::FaultOfThisThread().c_str();
    case emulation::kCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case emulation::kNotSupported:
      return "operation not supported";
    default:
      return "unrecognized error code";
  }
}

Error QueryDevice(int ordinal, Device* device) {
  *device = emulation::TheDevice();
  return emulation::CheckOrdinal(ordinal);
}

}  // namespace cuda
}  // namespace ecornn

using ecornn::emulation::statistics;
using ecornn::emulation::TheHost;

void ecornn_emulation_set_device(int multiprocessors, size_t shared_per_block,
                                 int major, int minor, int cooperative) {
  std::lock_guard<std::mutex> lock(TheHost().state);
  TheHost().device = {
      0, major, minor, multiprocessors, shared_per_block, cooperative != 0};
}

void ecornn_emulation_set_seed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(TheHost().state);
  TheHost().seed = seed;
  TheHost().launches = 0;
}

void ecornn_emulation_disable(int sync_point) {
  TheHost();  // lest it read the environment later
  ecornn::emulation::SetDisabledPoint(sync_point);
}

int ecornn_emulation_sync_points() { return ecornn::cuda::kSyncPointCount; }

const char* ecornn_emulation_sync_point_name(int point) {
  return ecornn::emulation::SyncPointName(point);
}

int64_t ecornn_emulation_launches() { return statistics.launches; }
int64_t ecornn_emulation_cooperative_launches() {
  return statistics.cooperative_launches;
}
int64_t ecornn_emulation_blocks() { return statistics.blocks; }
int64_t ecornn_emulation_block_barriers() { return statistics.barriers; }

const char* ecornn_emulation_error() {
  static thread_local std::string text;
  std::lock_guard<std::mutex> lock(TheHost().state);
  text = TheHost().fault;
  return text.c_str();
}

void ecornn_emulation_reset() {
  ecornn::emulation::SetDisabledPoint(ecornn::emulation::FirstDisabledPoint());
  std::lock_guard<std::mutex> lock(TheHost().state);
  TheHost().device = ecornn::emulation::kH200;
  TheHost().seed = ecornn::emulation::FirstSeed();
  TheHost().launches = 0;
  TheHost().fault.clear();
  statistics.launches = 0;
  statistics.cooperative_launches = 0;
  statistics.blocks = 0;
  statistics.barriers = 0;
}
