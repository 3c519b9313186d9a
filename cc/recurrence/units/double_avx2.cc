#define ECORNN_TARGET avx2
#include "unit.h"

ECORNN_DEFINE_UNIT(double)
