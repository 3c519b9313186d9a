#include "../define_unit.h"

ECORNN_DEFINE_UNIT(BackwardArgs<Half>, false, TileOf<Half>)
