// The summed products against sums in double, and the same bits for every team.
#include <cmath>
#include <string>
#include <vector>

#include "../../cc/recurrence/engine.h"
#include "../../cc/recurrence/solo_team.h"
#include "comparisons.h"
#include "engine_runs.h"
#include "groups.h"
#include "random.h"
#include "teams.h"

namespace ecornn {
namespace test {
namespace {

struct Sizes {
  int64_t batch, steps, left, second_left, parts, part_width;
};
// Around vectors, tiles, panels, windows and chunks; the last ones have work
// for several threads by the engine's measure.
constexpr Sizes kSizes[] = {
    {0, 2, 5, 0, 1, 3},    {2, 0, 5, 2, 1, 3},     {1, 1, 1, 0, 1, 1},
    {2, 3, 7, 1, 3, 5},    {3, 64, 6, 0, 1, 64},   {5, 39, 17, 18, 2, 33},
    {1, 193, 3, 9, 4, 16}, {9, 230, 33, 5, 3, 21}, {4, 60, 130, 30, 4, 130}};

template <class S>
struct Case {
  Sizes sizes;
  int64_t first_part, part_count;
  std::vector<Array<S>> lefts;
  Array<S> right;
  Array<bool> mask;
  Array<S> factors;
};

template <class S>
Array<S> DrawArray(const char* name, std::vector<int64_t> shape,
                   Random* random) {
  Array<S> array(name, std::move(shape));
  for (int64_t i = 0; i < array.size(); ++i) {
    array[i] = static_cast<S>(random->Between(-1, 1));
  }
  return array;
}

template <class S>
Case<S> DrawCase(const Sizes& sizes, bool mask, bool factors, Random* random) {
  Case<S> c;
  c.sizes = sizes;
  c.first_part = random->Below(static_cast<int>(sizes.parts));
  c.part_count =
      1 + random->Below(static_cast<int>(sizes.parts - c.first_part));
  const int64_t batch = sizes.batch;
  const int64_t steps = sizes.steps;
  c.lefts.push_back(DrawArray<S>("left", {batch, steps, sizes.left}, random));
  if (sizes.second_left > 0) {
    c.lefts.push_back(
        DrawArray<S>("left", {batch, steps, sizes.second_left}, random));
  }
  c.right = DrawArray<S>(
      "right", {batch, steps, sizes.parts * sizes.part_width}, random);
  if (mask) {
    c.mask = Array<bool>("mask", {batch, steps});
    for (int64_t i = 0; i < c.mask.size(); ++i) {
      c.mask[i] = random->Chance(0.6);
      if (c.mask[i]) continue;
      // What must not be read.
      for (int64_t m = 0; m < sizes.left; ++m) {
        c.lefts[0][i * sizes.left + m] = static_cast<S>(NAN);
      }
    }
  }
  if (factors) {
    c.factors =
        DrawArray<S>("factors", {batch, c.part_count, sizes.left}, random);
  }
  return c;
}

template <class S>
std::vector<Array<double>> Expected(const Case<S>& c) {
  const Sizes& s = c.sizes;
  const int64_t columns = c.part_count * s.part_width;
  std::vector<Array<double>> products;
  for (size_t l = 0; l < c.lefts.size(); ++l) {
    const int64_t width = l == 0 ? s.left : s.second_left;
    products.push_back(Array<double>::Zeros("product", {width, columns}));
    for (int64_t i = 0; i < s.batch * s.steps; ++i) {
      if (c.mask.present() && !c.mask[i]) continue;
      for (int64_t m = 0; m < width; ++m) {
        for (int64_t n = 0; n < columns; ++n) {
          double left = c.lefts[l][i * width + m];
          if (l == 0 && c.factors.present()) {
            const int64_t row = i / s.steps * c.part_count + n / s.part_width;
            left *= c.factors[row * width + m];
          }
          products[l][m * columns + n] +=
              left * c.right[i * s.parts * s.part_width +
                             c.first_part * s.part_width + n];
        }
      }
    }
  }
  return products;
}

template <class S>
std::vector<Array<S>> Run(Isa isa, const Case<S>& c, Team& team) {
  const Sizes& s = c.sizes;
  SummedProductsArgs<S> args = {};
  args.batch = s.batch;
  args.steps = s.steps;
  args.right = c.right.data();
  args.width = s.parts * s.part_width;
  args.first = c.first_part * s.part_width;
  args.count = c.part_count * s.part_width;
  args.mask = c.mask.data();
  args.factors = c.factors.data();
  args.parts = c.part_count;
  std::vector<Array<S>> products;
  for (const Array<S>& left : c.lefts) {
    const int64_t width = left.extent(2);
    products.push_back(Array<S>("product", {width, args.count}));
    products.back().FillBytes(0xff);
    args.lefts[args.left_count++] = {left.data(), width,
                                     products.back().data()};
  }
  const Engine<S>& engine = EngineFor<S>(isa);
  const Scratch scratch(engine.summed_products_scratch(args, team.size()),
                        0xff);
  engine.summed_products(args, scratch.data(), team);
  return products;
}

template <class S>
void TestCase(Isa isa, const Case<S>& c, const std::string& label,
              Random* random, Report* report) {
  SoloTeam solo;
  const std::vector<Array<S>> alone = Run(isa, c, solo);
  const std::vector<Array<double>> expected = Expected(c);
  Verdict values;
  for (size_t l = 0; l < alone.size(); ++l) {
    values.Near(alone[l], expected[l], sizeof(S) == 8 ? 1e-14 : 2e-6);
  }
  report->Add(std::string(IsaName(isa)) + label, values);
  for (int threads : {2, 3, 16}) {
    Verdict bits;
    ThreadTeam team(threads, random->Next());
    const std::vector<Array<S>> shared = Run(isa, c, team);
    for (size_t l = 0; l < alone.size(); ++l) {
      bits.SameBits(shared[l], alone[l], "the caller alone");
    }
    report->Add(std::string(IsaName(isa)) + label + ", " +
                    std::to_string(threads) + " threads",
                bits);
  }
}

template <class S>
void TestType(uint64_t seed, Report* report) {
  report->Begin(std::string("products, ") + TypeName<S>());
  Random random(seed);
  for (const Sizes& s : kSizes) {
    for (int options = 0; options < 4; ++options) {
      const bool mask = options % 2 == 1;
      const bool factors = options / 2 == 1;
      const Case<S> c = DrawCase<S>(s, mask, factors, &random);
      std::string label;
      for (int64_t size :
           {s.batch, s.steps, s.left, s.second_left, s.parts, s.part_width}) {
        label += " " + std::to_string(size);
      }
      label += mask ? ", masked" : "";
      label += factors ? ", factors" : "";
      for (Isa isa : AvailableIsas()) {
        TestCase(isa, c, label, &random, report);
      }
    }
  }
  report->End();
}

}  // namespace

void TestProducts(uint64_t seed, Report* report) {
  TestType<float>(seed, report);
  TestType<double>(seed + 1, report);
}

}  // namespace test
}  // namespace ecornn
