// SPDX-License-Identifier: Apache-2.0
// Registers every case for every backend.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "backends/vulkan/device.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

const Exception* Find(const std::vector<Exception>& list, const std::string& name) {
  for (const Exception& exception : list) {
    if (exception.name == name) {
      return &exception;
    }
  }
  return nullptr;
}

class CaseTest final : public testing::Test {
 public:
  CaseTest(const Backend& backend, Case test_case) : backend_(backend), case_(std::move(test_case)) {}

  void TestBody() override {
    if (const Exception* unsupported = Find(backend_.unsupported, case_.name)) {
      GTEST_SKIP() << "Unsupported: " << unsupported->reason;
    }
    if (case_.needs_kernels && !CanCompile(Bench(backend_.name).device().artifact_kind())) {
      GTEST_SKIP() << "This build has no compiler for the device.";
    }
    const Exception* expected = Find(backend_.expected_failure, case_.name);
    if (expected == nullptr) {
      Bench bench(backend_.name);
      case_.run(bench);
      return;
    }
    testing::TestPartResultArray results;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
      Bench bench(backend_.name);
      case_.run(bench);
    }
    EXPECT_GT(results.size(), 0) << "Passes, although it is listed as an expected failure: " << expected->reason;
  }

 private:
  const Backend& backend_;
  const Case case_;
};

// Reports that a backend has no device here.
class AbsentTest final : public testing::Test {
 public:
  explicit AbsentTest(const std::string& backend) : backend_(backend) {}
  void TestBody() override { GTEST_SKIP() << "This machine has no device of backend " << backend_ << "."; }

 private:
  const std::string backend_;
};

// Names in the lists without a case are errors, and so are exceptions without a reason.
class ListsTest final : public testing::Test {
 public:
  explicit ListsTest(std::set<std::string> cases) : cases_(std::move(cases)) {}
  void TestBody() override {
    for (const Backend& backend : Backends()) {
      for (const auto* list : {&backend.unsupported, &backend.expected_failure}) {
        for (const Exception& exception : *list) {
          EXPECT_TRUE(cases_.contains(exception.name)) << backend.name << " lists \"" << exception.name << "\"";
          EXPECT_FALSE(exception.reason.empty()) << backend.name << " gives no reason for " << exception.name;
        }
      }
    }
  }

 private:
  const std::set<std::string> cases_;
};

void RegisterAll() {
  std::vector<Case> cases;
  for (auto list : {CoreCases, BufferCases, TimelineCases, DispatchCases, FailureCases, BoxCases, LaneCases}) {
    for (Case& test_case : list()) {
      cases.push_back(std::move(test_case));
    }
  }
  std::set<std::string> names;
  for (const Case& test_case : cases) {
    names.insert(test_case.name);
    for (const Backend& backend : Backends()) {
      std::string name = backend.name + "/" + test_case.name;
      std::replace(name.begin(), name.end(), ':', '_');  // A colon separates filters.
      testing::RegisterTest("Conformance", name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [&backend, test_case]() -> testing::Test* { return new CaseTest(backend, test_case); });
    }
  }
  for (const std::string& absent : AbsentBackends()) {
    testing::RegisterTest("Conformance", (absent + "/absent").c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&absent]() -> testing::Test* { return new AbsentTest(absent); });
  }
  testing::RegisterTest("Conformance", "lists", nullptr, nullptr, __FILE__, __LINE__,
                        [names]() -> testing::Test* { return new ListsTest(names); });
}

}  // namespace
}  // namespace hpvm::conformance

#ifdef HPVMD_TEST_DRIVERS
// Enables Vulkan's validation layer where it is installed.
void Validate() {
  hpvm::Hub hub;
  const auto device = hpvm::CreateVulkanDevice("vulkan", hub, {.validate = true});
  if (device.ok()) {
    setenv("HPVMD_VULKAN_VALIDATION", "1", /*overwrite=*/0);
  } else {
    std::printf("The validation layer is not used: %s\n", hpvm::Message(device.status()).c_str());
  }
}

// Returns 0 if the layer reported nothing.
int Validated() {
  const hpvm::ValidationMessages messages = hpvm::TakeValidationMessages();
  for (const std::string& text : messages.texts) {
    std::fprintf(stderr, "Validation layer: %s\n", text.c_str());
  }
  return messages.count == 0 ? 0 : 1;
}
#else
void Validate() {}
int Validated() { return 0; }
#endif

int main(int argc, char** argv) {
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  testing::InitGoogleTest(&argc, argv);
  Validate();
  hpvm::conformance::RegisterAll();
  const int failed = RUN_ALL_TESTS();
  return Validated() != 0 ? 1 : failed;
}
