#include "engine.h"

#include <type_traits>

#include "units/units.h"

namespace ecornn {

Team::~Team() = default;

template <class S>
const Engine<S>& EngineFor(Isa isa) {
  switch (isa) {
    case Isa::kAmxBf16:
#ifdef ECORNN_HAVE_AMXBF16
      if constexpr (std::is_same_v<S, BFloat16>) {
        return amxbf16::UnitEngine<S>::kEngine;
      }
#endif
    case Isa::kAvx512Bf16:
#ifdef ECORNN_HAVE_AVX512BF16
      if constexpr (std::is_same_v<S, BFloat16>) {
        return avx512bf16::UnitEngine<S>::kEngine;
      }
#endif
      // The other types gain nothing from either.
    case Isa::kAvx512:
#ifdef ECORNN_HAVE_AVX512
      return avx512::UnitEngine<S>::kEngine;
#endif
    case Isa::kAvx2:
#ifdef ECORNN_HAVE_AVX2
      return avx2::UnitEngine<S>::kEngine;
#endif
    case Isa::kGeneric:
      break;
  }
  return generic::UnitEngine<S>::kEngine;
}

template const Engine<float>& EngineFor<float>(Isa);
template const Engine<double>& EngineFor<double>(Isa);
template const Engine<Half>& EngineFor<Half>(Isa);
template const Engine<BFloat16>& EngineFor<BFloat16>(Isa);

}  // namespace ecornn
