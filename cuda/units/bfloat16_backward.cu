#include "../define_unit.h"

ECORNN_DEFINE_UNIT(BackwardArgs<BFloat16>, false, TileOf<BFloat16>)
