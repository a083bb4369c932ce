// SPDX-License-Identifier: Apache-2.0
// Any text is refused or read; what is read prints, and reads back to the same text unless it is invalid; what
// verifies runs, briefly, inside its buffers.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/ir/interpret.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"

namespace hpvm::ir {
namespace {

void RunBriefly(const Module& module) {
  if (module.memory_bytes_max > (uint64_t{16} << 20)) {
    return;  // One fill of a gigabyte would look like a hang.
  }
  std::vector<std::vector<uint64_t>> buffers(module.params.size());
  Launch launch;
  launch.extent = {3, 2, 1};
  launch.group = {2, 2, 1};
  for (size_t i = 0; i < module.params.size(); ++i) {
    buffers[i].resize(5, i);
    launch.arguments.push_back(module.params[i].is_buffer
                                   ? Argument{reinterpret_cast<uint8_t*>(buffers[i].data()), 39, 0}
                                   : Argument{nullptr, 0, i * 7});
  }
  (void)Interpret(module, launch, {.begin = 0, .end = 6, .steps_max = 2000});
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
  RunBriefly(*module);
  return 0;
}
