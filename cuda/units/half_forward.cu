#include "../define_unit.h"

ECORNN_DEFINE_UNIT(ForwardArgs<Half>, false, TileOf<Half>)
