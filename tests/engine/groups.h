// The groups of cases, each in the file of its name.
#ifndef TF_ECORNN_TESTS_ENGINE_GROUPS_H_
#define TF_ECORNN_TESTS_ENGINE_GROUPS_H_

#include <cstdint>

#include "report.h"

namespace ecornn {
namespace test {

void TestActivations(Report* report);               // activations_test.cc
void TestExtremes(uint64_t seed, Report* report);   // extremes_test.cc
void TestOptional(uint64_t seed, Report* report);   // optional_test.cc
void TestProducts(uint64_t seed, Report* report);   // products_test.cc
void TestReference(uint64_t seed, Report* report);  // reference_test.cc
void TestRows(uint64_t seed, Report* report);       // rows_test.cc
void TestTeams(uint64_t seed, Report* report);      // teams_test.cc

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_GROUPS_H_
