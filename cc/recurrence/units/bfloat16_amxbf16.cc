#define ECORNN_TARGET amxbf16
#include "unit.h"

ECORNN_DEFINE_UNIT(BFloat16)
