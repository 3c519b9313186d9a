// Instruction sets: what was compiled in, what the machine has, what is in use.
#ifndef TF_ECORNN_CC_RECURRENCE_ISA_H_
#define TF_ECORNN_CC_RECURRENCE_ISA_H_

namespace ecornn {

// kAvx512Bf16 multiplies bfloat16 as it is, kAmxBf16 does so in matrix
// registers; for other types both are kAvx512.
enum class Isa : int { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };

const char* IsaName(Isa isa);

// Whether `isa` was compiled in and the machine (processor and operating
// system) has it. For kAmxBf16 this asks Linux for the process's permission.
bool IsaAvailable(Isa isa);

// The widest available one, or the one the environment variable TF_ECORNN_ISA
// names when it is available. Decided once, at the first call.
Isa ActiveIsa();

// "generic,avx2,avx512,avx512bf16,amxbf16", less what was not compiled in.
const char* CompiledIsas();

}  // namespace ecornn

#endif  // TF_ECORNN_CC_RECURRENCE_ISA_H_
