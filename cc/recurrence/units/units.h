// What each instruction set's translation unit defines.
#ifndef TF_ECORNN_CC_RECURRENCE_UNITS_UNITS_H_
#define TF_ECORNN_CC_RECURRENCE_UNITS_UNITS_H_

#include "../engine.h"

#define ECORNN_DECLARE_UNIT(target)                     \
  namespace ecornn {                                    \
  namespace target {                                    \
  template <class S>                                    \
  struct UnitEngine {                                   \
    static const Engine<S> kEngine;                     \
  };                                                    \
  template <>                                           \
  const Engine<float> UnitEngine<float>::kEngine;       \
  template <>                                           \
  const Engine<double> UnitEngine<double>::kEngine;     \
  template <>                                           \
  const Engine<Half> UnitEngine<Half>::kEngine;         \
  template <>                                           \
  const Engine<BFloat16> UnitEngine<BFloat16>::kEngine; \
  }                                                     \
  }

ECORNN_DECLARE_UNIT(generic)
ECORNN_DECLARE_UNIT(avx2)
ECORNN_DECLARE_UNIT(avx512)
// Of these BFloat16's alone is defined.
ECORNN_DECLARE_UNIT(avx512bf16)
ECORNN_DECLARE_UNIT(amxbf16)

#undef ECORNN_DECLARE_UNIT

#endif  // TF_ECORNN_CC_RECURRENCE_UNITS_UNITS_H_
