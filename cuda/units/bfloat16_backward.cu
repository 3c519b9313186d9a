#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Backward, BFloat16, false, TileOf<BFloat16>)
