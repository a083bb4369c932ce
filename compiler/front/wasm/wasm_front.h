// SPDX-License-Identifier: Apache-2.0
// The Wasm front end turns the bytes of a WebAssembly module into a kernel IR module whose entry is one exported
// function.
//
// Supported: WebAssembly 2.0 (multiple values, bulk memory, reference types, 128-bit vectors), the atomic
// instructions of the threads proposal, 64-bit memory with 32-bit tables, and the 64-bit tables that clang creates
// for indirect calls. All else (exceptions, tail calls, garbage collection, several memories, relaxed vectors,
// imports other than those of imports.h) is refused by name with its byte offset.
//
// A start function runs once, in the interpreter, while the kernel is read; the memory, globals and tables that it
// leaves are the kernel's initial state. A start function that needs a running instance, traps or does not end is
// refused.
//
// Waiting: memory.atomic.wait gives 1 or 2 or traps, and notify gives 0, since no instance waits for another except
// at a barrier.
//
// Reading fully validates the module. The reader never recurses on the module's nesting, so deep nesting costs no
// stack. Hostile modules may still be slow or large to read; the reader runs in a compile child with resource limits.
//
// Module memory: `memory_bytes` is the declared initial size. `memory_bytes_max` equals it when no reachable function
// has memory.grow. Otherwise it is the declared maximum, or 16 MiB above the initial size when none is declared, and
// at most limits::kModuleMemoryBytesMax: parameter buffers lie above the memory, so a module without a maximum must
// not take the whole address space.
//
// Threads: all functions are pure and thread-safe.
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
  std::vector<ParamSpec> params;  // The arguments that the graph passes, in order; the entry's signature is checked
                                  // against them.
  Abi abi = Abi::kHpvm;
  std::string module_name;  // The module's name in the graph, for messages.
  // Uses the fast form of math functions that have one, and marks all of them so that the node's fast math changes
  // them only as far as their algorithms permit (ir::Function::fast_math).
  bool fast_math = false;
  // With fast_math: the kernel is for a device with GpuTarget::device_math.
  bool device_math = false;
  // Replaces `params`: every integer of the address's type is a writable buffer, every other parameter a scalar; abi
  // must be kHpvm. Serves to find out the parameters (compiler/driver/explain.h).
  bool takes_any_params = false;
};

struct ReadOutcome {
  // Present exactly when `diagnostics` has no errors. The module satisfies ir::Verify.
  std::optional<ir::Module> module;
  // Each diagnostic has its byte offset where one is known.
  Diagnostics diagnostics;
};

ReadOutcome ReadWasm(std::span<const uint8_t> bytes, const WasmOptions& options);

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_WASM_FRONT_H_
