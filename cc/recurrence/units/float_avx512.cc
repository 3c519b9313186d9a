#define ECORNN_TARGET avx512
#include "unit.h"

ECORNN_DEFINE_UNIT(float)
