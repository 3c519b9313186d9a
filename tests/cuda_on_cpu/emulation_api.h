// What tests tell and ask the emulation, in C. Pointers to text hold until the
// calling thread asks again.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_EMULATION_API_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_EMULATION_API_H_

#include <stddef.h>
#include <stdint.h>

#define ECORNN_EMULATION_API __attribute__((visibility("default")))

extern "C" {

// The device: an H200 until told otherwise.
ECORNN_EMULATION_API void ecornn_emulation_set_device(int multiprocessors,
                                                      size_t shared_per_block,
                                                      int major, int minor,
                                                      int cooperative);
// The order in which threads run; launches of one seed differ from each other.
// Without, ECORNN_EMULATION_SEED or else chance gives it.
ECORNN_EMULATION_API void ecornn_emulation_set_seed(uint64_t seed);
// A SyncPoint that does nothing, or -1: none. BlockAny still answers, but is no
// barrier to memory. At first what ECORNN_EMULATION_DISABLE says.
ECORNN_EMULATION_API void ecornn_emulation_disable(int sync_point);
ECORNN_EMULATION_API int ecornn_emulation_sync_points(void);
ECORNN_EMULATION_API const char* ecornn_emulation_sync_point_name(int point);

// Counts since the last reset.
ECORNN_EMULATION_API int64_t ecornn_emulation_launches(void);
ECORNN_EMULATION_API int64_t ecornn_emulation_cooperative_launches(void);
ECORNN_EMULATION_API int64_t ecornn_emulation_blocks(void);
ECORNN_EMULATION_API int64_t ecornn_emulation_block_barriers(void);

// The text of the last fault of any launch since the last reset, or "".
ECORNN_EMULATION_API const char* ecornn_emulation_error(void);

// An H200, chance or the environment's seed, all SyncPoints, no counts.
ECORNN_EMULATION_API void ecornn_emulation_reset(void);
}

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_EMULATION_API_H_
