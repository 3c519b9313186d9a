#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Forward, BFloat16, false, TileOf<BFloat16>)
