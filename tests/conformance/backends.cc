// SPDX-License-Identifier: Apache-2.0
// The backends under test. A new backend is one row here.
#include <cstdio>

#include "backends/registry.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

// All cases that examine what commands computed.
[[maybe_unused]] std::vector<Exception> RunsNothing() {
  std::vector<Exception> all;
  for (auto cases : {DispatchCases, FailureCases, BoxCases, LaneCases}) {
    for (const Case& test_case : cases()) {
      all.push_back({test_case.name, "Runs no kernel."});
    }
  }
  for (const char* name : {"buffer_copy", "buffer_fill", "buffer_commands_in_order", "timeline_deferred_order"}) {
    all.push_back({name, "Moves no data."});
  }
  all.push_back({"core_load_refuses_nonsense", "Accepts every artifact."});
  return all;
}

// Cases that GPUs do not support, by their nature or by docs/KERNELS.md.
[[maybe_unused]] std::vector<Exception> OfDrivers() {
  return {
      {"dispatch_grow", "A kernel that grows its memory is refused when it is compiled."},
      {"failure_stack_overflow", "Recursion is refused when it is compiled."},
      {"failure_endless_tail_call", "Recursion is refused when it is compiled."},
      {"failure_divergence", "A barrier that not every instance may reach is refused when it is compiled."},
      {"failure_stop", "What runs on the device cannot be stopped; the executor is ended."},
  };
}

struct Present {
  std::vector<Backend> backends;
  std::vector<std::string> absent;
};

#ifdef HPVMD_TEST_DRIVERS
// Every device of a driver is a backend of its own. Drivers that cannot be queried are broken, not absent.
Present Find() {
  Present present;
  for (const char* driver : {"opencl", "vulkan"}) {
    const StatusOr<std::vector<std::string>> devices = backends::ListDevices(driver);
    if (!devices.ok()) {
      std::fprintf(stderr, "%s: %s\n", driver, Message(devices.status()).c_str());
    }
    HPVMD_CHECK(devices.ok());
    for (const std::string& device : *devices) {
      present.backends.push_back({device, OfDrivers(), {}});
      if (Bench(device).device().info().is_emulated) {
        present.backends.push_back({device + std::string(Bench::kLanes), OfDrivers(), {}});
      }
    }
    if (devices->empty()) {
      present.absent.push_back(driver);
    }
  }
  return present;
}

#else
Present Find() { return {{{"null", RunsNothing(), {}}, {"interp", {}, {}}, {"cpu", {}, {}}}, {}}; }
#endif

const Present& AllPresent() {
  static const Present present = Find();
  return present;
}

}  // namespace

const std::vector<Backend>& Backends() { return AllPresent().backends; }
const std::vector<std::string>& AbsentBackends() { return AllPresent().absent; }

}  // namespace hpvm::conformance
