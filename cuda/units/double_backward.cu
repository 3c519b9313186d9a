#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Backward, double, false, TileOf<double>)
