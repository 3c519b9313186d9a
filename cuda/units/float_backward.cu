#include "../define_unit.h"

ECORNN_DEFINE_UNIT(BackwardArgs<float>, false, TileOf<float>)
