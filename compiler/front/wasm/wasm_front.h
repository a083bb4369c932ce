// SPDX-License-Identifier: Apache-2.0
// Wasm front end: the bytes of a WebAssembly module become a kernel IR module whose entry is one exported function.
//
// What is taken: WebAssembly 2.0 (multiple values, bulk memory, reference types, 128-bit vectors), the atomic
// instructions of the threads proposal, 64-bit memory with 32-bit tables, and 64-bit tables as clang makes them: for
// indirect calls. What is not taken (exceptions, tail calls, garbage collection, several memories, relaxed vectors,
// imports other than those of imports.h) is refused by name with its byte offset.
//
// A start function runs once, while the kernel is read, in the interpreter; the memory, globals and tables that it
// leaves are the kernel's initial state. One that asks for what only a running instance has, traps or does not end is
// refused.
//
// Waiting: memory.atomic.wait gives 1 or 2 or traps, and notify gives 0, since no instance waits for another but at a
// barrier.
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
#include "compiler/api/service.h"
#include "compiler/ir/ir.h"

namespace hpvm::wasm {

struct WasmOptions {
  std::string entry;              // The export to run.
  std::vector<ParamSpec> params;  // What the graph passes, in order; the entry's signature is checked against it.
  Abi abi = Abi::kHpvm;
  std::string module_name;  // As the graph names it; for messages.
  // The math functions that have a fast form get it, and all of them are marked so that the node's fast math does not
  // reach further into them than they bear (ir::Function::fast_math).
  bool fast_math = false;
  // With fast_math: the kernel is for a device with GpuTarget::device_math.
  bool device_math = false;
  // Instead of `params`: every integer of the address's type is a writable buffer, every other parameter a scalar; abi
  // must be kHpvm. For finding out what they are (compiler/driver/explain.h).
  bool takes_any_params = false;
};

struct ReadOutcome {
  // Present exactly when `diagnostics` has no errors. It satisfies ir::Verify.
  std::optional<ir::Module> module;
  // Each with its byte offset where one is known.
  Diagnostics diagnostics;
};

ReadOutcome ReadWasm(std::span<const uint8_t> bytes, const WasmOptions& options);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_WASM_FRONT_H_
