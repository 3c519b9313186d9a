// Random numbers that are the same with every standard library (splitmix64,
// Steele et al., "Fast splittable pseudorandom number generators", 2014).
#ifndef TF_ECORNN_TESTS_ENGINE_RANDOM_H_
#define TF_ECORNN_TESTS_ENGINE_RANDOM_H_

#include <cstdint>

namespace ecornn {
namespace test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, count).
  int Below(int count) { return static_cast<int>(Next() % count); }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Between(double low, double high) {
    return low + (high - low) * Unit();
  }
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t state_;
};

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_RANDOM_H_
