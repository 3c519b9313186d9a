// Facts about this library, for `python -m tf_ecornn --info`.
#include "../recurrence/isa.h"

#define ECORNN_EXPORT extern "C" __attribute__((visibility("default")))

// The instruction set in use.
ECORNN_EXPORT const char* ecornn_isa() {
  return ecornn::IsaName(ecornn::ActiveIsa());
}

// Comma-separated names of the instruction sets that were compiled in.
ECORNN_EXPORT const char* ecornn_compiled_isas() {
  return ecornn::CompiledIsas();
}

ECORNN_EXPORT int ecornn_has_cuda() { return 0; }
