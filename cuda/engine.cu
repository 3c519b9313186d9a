#include "engine.h"

#include "platform.h"
#include "units.h"

namespace ecornn {
namespace cuda {
namespace {

// TF32 has tensor cores from compute capability 8 on.
bool UsesTensorFloat32(const Settings& settings, const Device& device) {
  return settings.tensor_float_32 && device.major >= 8;
}

// Calls use(engine, device), on the settings' device.
template <template <class, bool> class Engine, class S, class Use>
Error WithEngine(const Settings& settings, const Use& use) {
  const CurrentDevice current(settings.device);
  if (current.error() != 0) return current.error();
  Device device;
  const Error error = QueryDevice(settings.device, &device);
  if (error != 0) return error;
  if constexpr (sizeof(S) == sizeof(float)) {
    if (UsesTensorFloat32(settings, device)) {
      return use(Engine<S, true>(), device);
    }
  }
  return use(Engine<S, false>(), device);
}

}  // namespace

template <class S>
Error ForwardScratch(const ForwardArgs<S>& args, const Settings& settings,
                     size_t* bytes) {
  return WithEngine<ForwardEngine, S>(
      settings, [&](auto engine, const Device& device) {
        return engine.Scratch(args, device, settings.path, bytes);
      });
}

template <class S>
Error BackwardScratch(const BackwardArgs<S>& args, const Settings& settings,
                      size_t* bytes) {
  return WithEngine<BackwardEngine, S>(
      settings, [&](auto engine, const Device& device) {
        return engine.Scratch(args, device, settings.path, bytes);
      });
}

template <class S>
Error Forward(const ForwardArgs<S>& args, const Settings& settings,
              void* scratch, Stream stream) {
  return WithEngine<ForwardEngine, S>(
      settings, [&](auto engine, const Device& device) {
        return engine.Run(args, device, settings.path, scratch, stream);
      });
}

template <class S>
Error Backward(const BackwardArgs<S>& args, const Settings& settings,
               void* scratch, Stream stream) {
  return WithEngine<BackwardEngine, S>(
      settings, [&](auto engine, const Device& device) {
        return engine.Run(args, device, settings.path, scratch, stream);
      });
}

#define ECORNN_INSTANTIATE(S)                                             \
  template Error ForwardScratch(const ForwardArgs<S>&, const Settings&,   \
                                size_t*);                                 \
  template Error BackwardScratch(const BackwardArgs<S>&, const Settings&, \
                                 size_t*);                                \
  template Error Forward(const ForwardArgs<S>&, const Settings&, void*,   \
                         Stream);                                         \
  template Error Backward(const BackwardArgs<S>&, const Settings&, void*, \
                          Stream);

ECORNN_INSTANTIATE(float)
ECORNN_INSTANTIATE(double)
ECORNN_INSTANTIATE(Half)
ECORNN_INSTANTIATE(BFloat16)

#undef ECORNN_INSTANTIATE

}  // namespace cuda
}  // namespace ecornn
