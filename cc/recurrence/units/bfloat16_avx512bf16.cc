#define ECORNN_TARGET avx512bf16
#include "unit.h"

ECORNN_DEFINE_UNIT(BFloat16)
