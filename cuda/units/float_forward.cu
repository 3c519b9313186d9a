#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Forward, float, false, TileOf<float>)
