// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/start.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "compiler/front/wasm/lower/layout.h"
#include "compiler/front/wasm/read/fault.h"
#include "compiler/ir/interpret/interpret.h"

namespace hpvm::wasm {
namespace {

struct Free {
  void operator()(uint8_t* bytes) const { std::free(bytes); }
};
using Bytes = std::unique_ptr<uint8_t[], Free>;

// Returns zeroed bytes, which are backed by memory only where they are touched.
Bytes Allocate(uint64_t bytes) { return Bytes(static_cast<uint8_t*>(std::calloc(bytes == 0 ? 1 : bytes, 1))); }

void Copy(const std::vector<ir::DataSegment>& segments, uint8_t* to) {
  for (const ir::DataSegment& segment : segments) {
    std::memcpy(to + segment.address, segment.bytes.data(), segment.bytes.size());
  }
}

// Returns the import that the call at that offset names.
std::string CalledImport(const Module& module, uint32_t source) {
  for (const Function& function : module.functions) {
    for (const Instr& instr : function.code) {
      if (instr.source == source && instr.kind == InstrKind::kCall && module.functions[instr.imm].import) {
        return module.functions[instr.imm].import->name;
      }
    }
  }
  return "";
}

std::string Explain(const Module& module, const ir::Module& start, const ir::TrapReport& report) {
  const std::string what = "The start function \"" + start.function(start.entry).name + "\" ";
  const std::string& function = start.functions[report.function].name;
  if (report.code == ir::TrapCode::kStopped) {
    return what + "does not end within " + std::to_string(limits::kWasmStartStepsMax) +
           " calls and iterations of loops, which is the limit.";
  }
  if (report.code == ir::TrapCode::kHost) {
    const std::string import = report.source == 0 ? function : CalledImport(module, report.source);
    return what + "is refused: it calls \"hpvm." + import +
           "\", which works only while instances run. A start function runs once, when the kernel is compiled.";
  }
  return what + "traps: " + std::string(ir::Name(report.code)) + " in function \"" + function + "\".";
}

}  // namespace

bool RunStart(const Module& module, ir::Module start, const std::string& place, ir::Module& out,
              Diagnostics& diagnostics) {
  const auto fail = [&](uint64_t source, std::string message) {
    diagnostics.push_back(Fault(place, source, std::move(message)));
    return false;
  };
  const Bytes memory = Allocate(start.memory_bytes_max);
  const Bytes state = Allocate(start.state_bytes);
  if (memory == nullptr || state == nullptr) {
    return fail(module.start_source, "There is not enough memory to run the module's start function.");
  }
  Copy(start.data, memory.get());
  Copy(start.state, state.get());
  std::vector<uint64_t> globals;
  for (const ir::Global& global : start.globals) {
    globals.push_back(global.init);
  }
  ir::InstanceStorage storage{memory.get(), start.memory_bytes, start.memory_bytes_max, globals.data(), state.get()};
  ir::Launch launch;
  launch.instance = &storage;
  const StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(std::move(start));
  if (!interpreter.ok()) {
    return fail(module.start_source, "The start function cannot run: " + std::string(interpreter.status().message()));
  }
  const StatusOr<ir::TrapReport> report = interpreter->Run(launch, {.steps_max = limits::kWasmStartStepsMax});
  if (!report.ok()) {
    return fail(module.start_source, "The start function cannot run: " + std::string(report.status().message()));
  }
  if (report->code != ir::TrapCode::kNone) {
    return fail(report->source == 0 ? module.start_source : report->source,
                Explain(module, interpreter->module(), *report));
  }
  std::optional<std::vector<ir::DataSegment>> data =
      Compact({memory.get(), storage.memory_bytes}, limits::kWasmStartBytesMax);
  if (!data) {
    return fail(module.start_source, "The start function leaves more bytes in memory than the limit (" +
                                         std::to_string(limits::kWasmStartBytesMax) + ").");
  }
  out.data = *std::move(data);
  out.memory_bytes = storage.memory_bytes;
  out.state = *Compact({state.get(), out.state_bytes}, out.state_bytes);
  for (size_t i = 0; i < globals.size(); ++i) {
    out.globals[i].init = globals[i];
  }
  return true;
}

}  // namespace hpvm::wasm
