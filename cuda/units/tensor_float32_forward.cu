#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Forward, float, true, TensorFloat32Tile)
