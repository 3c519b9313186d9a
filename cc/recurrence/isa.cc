#include "isa.h"

#include <cstdlib>
#include <cstring>

#ifdef ECORNN_HAVE_AMXBF16
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ecornn {
namespace {

constexpr Isa kAll[] = {Isa::kAmxBf16, Isa::kAvx512Bf16, Isa::kAvx512,
                        Isa::kAvx2, Isa::kGeneric};

#ifdef ECORNN_HAVE_AMXBF16
// The registers' 8 KiB are a process's on demand: arch_prctl() with
// ARCH_REQ_XCOMP_PERM for XFEATURE_XTILE_DATA (Linux,
// Documentation/arch/x86/xstate.rst). Fails where the kernel is older.
bool MayUseMatrixRegisters() {
  constexpr long kRequest = 0x1023;
  constexpr long kTileData = 18;
  static const bool may = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may;
}
#endif

Isa Choose() {
  const char* wanted = std::getenv("TF_ECORNN_ISA");
  for (Isa isa : kAll) {
    if (wanted != nullptr && std::strcmp(wanted, IsaName(isa)) == 0 &&
        IsaAvailable(isa)) {
      return isa;
    }
  }
  for (Isa isa : kAll) {
    if (IsaAvailable(isa)) return isa;
  }
  return Isa::kGeneric;
}

}  // namespace

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAmxBf16:
      return "amxbf16";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kGeneric:
      break;
  }
  return "generic";
}

bool IsaAvailable(Isa isa) {
  switch (isa) {
    case Isa::kAmxBf16:
#ifdef ECORNN_HAVE_AMXBF16
      return IsaAvailable(Isa::kAvx512Bf16) &&
             __builtin_cpu_supports("amx-tile") &&
             __builtin_cpu_supports("amx-bf16") && MayUseMatrixRegisters();
#else
      return false;
#endif
    case Isa::kAvx512Bf16:
#ifdef ECORNN_HAVE_AVX512BF16
      return IsaAvailable(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
#else
      return false;
#endif
    case Isa::kAvx512:
#ifdef ECORNN_HAVE_AVX512
      return __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl");
#else
      return false;
#endif
    case Isa::kAvx2:
#ifdef ECORNN_HAVE_AVX2
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
      return false;
#endif
    case Isa::kGeneric:
      break;
  }
  return true;
}

Isa ActiveIsa() {
  static const Isa isa = Choose();
  return isa;
}

const char* CompiledIsas() {
  return "generic"
#ifdef ECORNN_HAVE_AVX2
         ",avx2"
#endif
#ifdef ECORNN_HAVE_AVX512
         ",avx512"
#endif
#ifdef ECORNN_HAVE_AVX512BF16
         ",avx512bf16"
#endif
#ifdef ECORNN_HAVE_AMXBF16
         ",amxbf16"
#endif
      ;
}

}  // namespace ecornn
