// SPDX-License-Identifier: Apache-2.0
// The backends under test. A new backend is one row here.
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

// Everything that looks at what commands computed.
std::vector<Exception> RunsNothing() {
  std::vector<Exception> all;
  for (auto cases : {DispatchCases, FailureCases}) {
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

}  // namespace

const std::vector<Backend>& Backends() {
  static const std::vector<Backend> backends = {
      {"null", RunsNothing(), {}},
      {"interp", {}, {}},
      {"cpu", {}, {}},
  };
  return backends;
}

}  // namespace hpvm::conformance
