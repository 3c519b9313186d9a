#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Forward, double, false, TileOf<double>)
