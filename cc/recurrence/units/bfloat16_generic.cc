#define ECORNN_TARGET generic
#include "unit.h"

ECORNN_DEFINE_UNIT(BFloat16)
