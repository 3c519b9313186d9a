// What the kernels need of their machine: CUDA, or an emulation of it on the
// CPU. The kernels use nothing else of CUDA, so that any C++ compiler can build
// them for the emulation, which checks what a GPU would let pass (see
// tests/cuda_on_cpu).
#ifndef TF_ECORNN_CUDA_PLATFORM_H_
#define TF_ECORNN_CUDA_PLATFORM_H_

#ifdef ECORNN_CUDA_ON_CPU
#include "cuda_on_cpu.h"
#else
#include "nvidia.h"
#endif

#endif  // TF_ECORNN_CUDA_PLATFORM_H_
