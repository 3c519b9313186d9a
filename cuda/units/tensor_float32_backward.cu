#include "../define_unit.h"

ECORNN_DEFINE_UNIT(Backward, float, true, TensorFloat32Tile)
