// SPDX-License-Identifier: Apache-2.0
// Wasm front end: the bytes of a WebAssembly module become a kernel IR module whose entry is one exported function.
//
// What is taken: the WebAssembly 1.0 instructions, sign extension, saturating conversions, multiple values, memory.copy
// and memory.fill, mutable globals, one table with call_indirect, active segments at constant offsets, the atomic
// instructions of the threads proposal but for wait and notify, 64-bit memory. What is not taken (SIMD, reference
// types, exceptions, tail calls, garbage collection, passive segments' instructions, a start function, imports other
// than those of `hpvm`) is refused by name with its byte offset.
//
// Reading fully validates the module. It never recurses on what the module nests, so deep nesting costs no stack. It
// may still be slow or large for hostile modules; it runs in a compile child under caps.
//
// Module memory: `memory_bytes` is the declared initial size. `memory_bytes_max` equals it when no reachable function
// has memory.grow. Otherwise it is the declared maximum, or 16 MiB above the initial size when none is declared, and at
// most limits::kModuleMemoryBytesMax: parameter buffers lie above it, so a module without a maximum must not take the
// whole address space.
//
// Threads: functions are pure; any thread.
#ifndef HPVMD_COMPILER_FRONT_WASM_WASM_FRONT_H_
#define HPVMD_COMPILER_FRONT_WASM_WASM_FRONT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/ir/ir.h"
#include "compiler/service.h"

namespace hpvm {

struct WasmOptions {
  std::string entry;              // The export to run.
  std::vector<ParamSpec> params;  // What the graph passes, in order; the entry's signature is checked against it.
  Abi abi = Abi::kHpvm;
  std::string module_name;  // As the graph names it; for messages.
};

struct ReadOutcome {
  // Present exactly when `diagnostics` has no errors. It satisfies ir::Verify.
  std::optional<ir::Module> module;
  // Each with its byte offset where one is known.
  Diagnostics diagnostics;
};

ReadOutcome ReadWasm(std::span<const uint8_t> bytes, const WasmOptions& options);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_FRONT_WASM_WASM_FRONT_H_
