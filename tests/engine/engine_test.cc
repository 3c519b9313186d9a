// Tests of the CPU engine that need neither TensorFlow nor a test framework, so
// that they can run under sanitizers.
//
//   engine_test [seed]
//
// A seed other than the usual 1 draws other cases. Exits with 0 when all hold.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../cc/recurrence/isa.h"
#include "engine_runs.h"
#include "groups.h"
#include "report.h"

namespace ecornn {
namespace test {
namespace {

void TestIsas(Report* report) {
  report->Begin("instruction sets");
  std::string names;
  const std::string compiled = std::string(",") + CompiledIsas() + ",";
  for (Isa isa : AvailableIsas()) {
    Verdict verdict;
    if (compiled.find(std::string(",") + IsaName(isa) + ",") ==
        std::string::npos) {
      verdict.Fail(std::string("available, but not among ") + CompiledIsas());
    }
    report->Add(IsaName(isa), verdict);
    names += std::string(names.empty() ? "" : ", ") + IsaName(isa);
  }
  Verdict verdict;
  if (!IsaAvailable(Isa::kGeneric)) verdict.Fail("generic is not available");
  if (!IsaAvailable(ActiveIsa())) verdict.Fail("not available");
  // Nothing wider is available, unless the environment names one that is.
  const char* wanted = std::getenv("TF_ECORNN_ISA");
  Isa expected = AvailableIsas().back();
  for (Isa isa : AvailableIsas()) {
    if (wanted != nullptr && std::strcmp(wanted, IsaName(isa)) == 0) {
      expected = isa;
    }
  }
  if (ActiveIsa() != expected) {
    verdict.Fail(std::string("expected ") + IsaName(expected));
  }
  report->Add(std::string("active: ") + IsaName(ActiveIsa()), verdict);
  report->End("testing " + names);
}

int Main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  Report report;
  TestIsas(&report);
  TestActivations(&report);
  TestReference(seed, &report);
  TestOptional(seed, &report);
  TestRows(seed, &report);
  TestTeams(seed, &report);
  TestProducts(seed, &report);
  TestExtremes(seed, &report);
  return report.Close();
}

}  // namespace
}  // namespace test
}  // namespace ecornn

int main(int argc, char** argv) { return ecornn::test::Main(argc, argv); }
