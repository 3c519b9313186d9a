#include "engine.h"

#include <type_traits>

#include "platform.h"
#include "units.h"

namespace ecornn {
namespace cuda {
namespace {

// Whether a call's products may be in TF32.
template <class Args>
inline constexpr bool kOfFloat = std::is_same_v<Args, ForwardArgs<float>> ||
                                 std::is_same_v<Args, BackwardArgs<float>>;

// Calls use(engine, device), on the settings' device.
template <class Args, class Use>
Error WithEngine(const Settings& settings, const Use& use) {
  const CurrentDevice current(settings.device);
  if (current.error() != 0) return current.error();
  Device device;
  const Error error = QueryDevice(settings.device, &device);
  if (error != 0) return error;
  if constexpr (kOfFloat<Args>) {
    // TF32 has tensor cores from compute capability 8 on.
    if (settings.tensor_float_32 && device.major >= 8) {
      return use(TileEngine<Args, true>(), device);
    }
  }
  return use(TileEngine<Args, false>(), device);
}

}  // namespace

template <class Args>
Error Scratch(const Args& args, const Settings& settings, size_t* bytes) {
  return WithEngine<Args>(settings, [&](auto engine, const Device& device) {
    return engine.Scratch(args, device, settings.path, bytes);
  });
}

template <class Args>
Error Run(const Args& args, const Settings& settings, void* scratch,
          Stream stream) {
  return WithEngine<Args>(settings, [&](auto engine, const Device& device) {
    return engine.Run(args, device, settings.path, scratch, stream);
  });
}

#define ECORNN_INSTANTIATE(Args)                                 \
  template Error Scratch(const Args&, const Settings&, size_t*); \
  template Error Run(const Args&, const Settings&, void*, Stream);

#define ECORNN_INSTANTIATE_BOTH(S)   \
  ECORNN_INSTANTIATE(ForwardArgs<S>) \
  ECORNN_INSTANTIATE(BackwardArgs<S>)

ECORNN_INSTANTIATE_BOTH(float)
ECORNN_INSTANTIATE_BOTH(double)
ECORNN_INSTANTIATE_BOTH(Half)
ECORNN_INSTANTIATE_BOTH(BFloat16)

#undef ECORNN_INSTANTIATE_BOTH
#undef ECORNN_INSTANTIATE

}  // namespace cuda
}  // namespace ecornn
