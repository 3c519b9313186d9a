// The body of a unit: one tile type's engine, forward or backward.
#ifndef TF_ECORNN_CUDA_DEFINE_UNIT_H_
#define TF_ECORNN_CUDA_DEFINE_UNIT_H_

#include "unit.h"

#define ECORNN_DEFINE_UNIT(Args, kTensorFloat32, Tile)                         \
  namespace ecornn {                                                           \
  namespace cuda {                                                             \
  template <>                                                                  \
  Error TileEngine<Args, kTensorFloat32>::Scratch(const Args& args,            \
                                                  const Device& device,        \
                                                  Path path, size_t* bytes) {  \
    return WithUnit<Tile>(args, [&](auto unit) {                               \
      return unit.Scratch(args, device, path, bytes);                          \
    });                                                                        \
  }                                                                            \
  template <>                                                                  \
  Error TileEngine<Args, kTensorFloat32>::Run(const Args& args,                \
                                              const Device& device, Path path, \
                                              void* scratch, Stream stream) {  \
    return WithUnit<Tile>(args, [&](auto unit) {                               \
      return unit.Run(args, device, path, scratch, stream);                    \
    });                                                                        \
  }                                                                            \
  }                                                                            \
  }

#endif  // TF_ECORNN_CUDA_DEFINE_UNIT_H_
