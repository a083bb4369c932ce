// SPDX-License-Identifier: Apache-2.0
// Any text is refused or parsed; a parsed module prints, and reads back to the same text unless it is invalid; a
// module that verifies runs briefly within its buffers, and a checked launch gives the same results.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "compiler/ir/check.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::ir {
namespace {

class NoPrint final : public PrintSink {
 public:
  void Print(const std::array<uint64_t, 3>&, uint32_t format, std::span<const uint64_t> values) override {
    HPVMD_CHECK(format < formats && values.size() <= limits::kPrintOperandsMax);
  }
  size_t formats = 0;
};

struct Outcome {
  TrapCode trap = TrapCode::kHost;  // When the launch is refused.
  std::vector<std::vector<uint64_t>> buffers;
};

Outcome RunBriefly(const Module& module, Checker* checker) {
  std::vector<std::vector<uint64_t>> buffers(module.params.size());
  NoPrint sink;
  sink.formats = module.formats.size();
  Launch launch;
  launch.print = &sink;
  launch.checker = checker;
  launch.extent = {3, 2, 1};
  launch.group = {2, 2, 1};
  for (size_t i = 0; i < module.params.size(); ++i) {
    buffers[i].resize(5, i);
    launch.arguments.push_back(module.params[i].is_buffer
                                   ? Argument{reinterpret_cast<uint8_t*>(buffers[i].data()), 39, 0}
                                   : Argument{nullptr, 0, i * 7});
  }
  const StatusOr<TrapReport> report = Interpret(module, launch, {.begin = 0, .end = 6, .steps_max = 2000});
  return {report.ok() ? report->code : TrapCode::kHost, std::move(buffers)};
}

void RunBothWays(const Module& module) {
  if (module.memory_bytes_max > (uint64_t{16} << 20)) {
    return;  // A fill of a gigabyte would look like a hang.
  }
  const Outcome plain = RunBriefly(module, nullptr);
  if (module.is_linked) {
    return;  // Only kernels can be checked.
  }
  Checker checker({.is_output = std::vector<bool>(module.params.size(), true), .record_bytes_max = uint64_t{16} << 20});
  const Outcome checked = RunBriefly(module, &checker);
  // When a launch traps, the check may report another instance's trap, after more has been written.
  HPVMD_CHECK((plain.trap == TrapCode::kNone) == (checked.trap == TrapCode::kNone));
  HPVMD_CHECK(plain.trap != TrapCode::kNone || plain.buffers == checked.buffers);
  for (const Finding& finding : checker.findings()) {
    HPVMD_CHECK(!ToString(finding, module).empty());
  }
}

}  // namespace
}  // namespace hpvm::ir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::ir;
  const hpvm::StatusOr<Module> module = ParseModule({reinterpret_cast<const char*>(data), size});
  if (!module.ok()) {
    return 0;
  }
  const std::string printed = Print(*module);
  if (!Verify(*module).empty()) {
    return 0;
  }
  const hpvm::StatusOr<Module> again = ParseModule(printed);
  HPVMD_CHECK(again.ok());
  HPVMD_CHECK(Verify(*again).empty());
  HPVMD_CHECK(Print(*again) == printed);
  RunBothWays(*module);
  return 0;
}
