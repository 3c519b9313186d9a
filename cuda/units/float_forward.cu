#include "../define_unit.h"

ECORNN_DEFINE_UNIT(ForwardArgs<float>, false, TileOf<float>)
