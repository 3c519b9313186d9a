#include "../define_unit.h"

ECORNN_DEFINE_UNIT(ForwardArgs<BFloat16>, false, TileOf<BFloat16>)
