#include "../define_unit.h"

ECORNN_DEFINE_UNIT(ForwardArgs<double>, false, TileOf<double>)
