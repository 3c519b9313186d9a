#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Forward, Half, false, TileOf<Half>)
