#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Backward, Half, false, TileOf<Half>)
