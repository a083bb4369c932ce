// SPDX-License-Identifier: Apache-2.0
// LLVM IR → optimised → ELF object → image. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_LLVM_CODEGEN_H_
#define HPVMD_COMPILER_BACK_LLVM_CODEGEN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/back/llvm/llvm_back.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace hpvm::cpu {

struct Machine;

// codegen.cc
StatusOr<Machine> MachineOf(const CpuTarget& target);
StatusOr<std::unique_ptr<llvm::TargetMachine>> CreateTargetMachine(const CpuTarget& target);
void Optimise(llvm::Module& module, llvm::TargetMachine& machine);
enum class FileKind : uint8_t { kObject, kAssembly };
// store_one_lane.cc. Masked stores of a single lane become plain stores, stores of none go. After all optimisations,
// which make masks constants. LLVM 22.1 merges the narrowing of a vector with its masked store and then, where the mask
// is a constant with one lane, stores that lane before it is narrowed (llvm-project issue 179489, X86 with AVX-512): up
// to seven bytes behind the element, which may be behind the buffer.
void StoreOneLanePlainly(llvm::Module& module);
StatusOr<std::string> GenerateCode(llvm::Module& module, llvm::TargetMachine& machine, FileKind kind);

// image.cc. Functions whose stack frames are above kCpuFrameBytesMax, which LinkImage does not ask.
struct Frame {
  std::string function;
  uint64_t bytes = 0;
  uint64_t place = 0;  // In the object's table.
};
StatusOr<std::vector<Frame>> LargeFrames(std::string_view object);

// Lays the object's code and constants out as one image and resolves what refers from one to the other. kInternal for
// any relocation that is not relative to its own place, any outside symbol, any writable data, a missing entry.
struct LinkedImage {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> entry_offsets;  // Of the entries asked for.
};
StatusOr<LinkedImage> LinkImage(std::string_view object, std::span<const std::string> entries);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_CODEGEN_H_
