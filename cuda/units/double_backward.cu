#include "../define_unit.h"

ECORNN_DEFINE_UNIT(BackwardArgs<double>, false, TileOf<double>)
