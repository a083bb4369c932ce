// SPDX-License-Identifier: Apache-2.0
// Optimises LLVM IR and compiles it to an ELF object and then an image. Internal to this folder.
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

// In codegen.cc.
StatusOr<Machine> MachineOf(const CpuTarget& target);
StatusOr<std::unique_ptr<llvm::TargetMachine>> CreateTargetMachine(const CpuTarget& target);
void Optimise(llvm::Module& module, llvm::TargetMachine& machine);
enum class FileKind : uint8_t { kObject, kAssembly };
// In store_one_lane.cc. Turns masked stores of a single lane into plain stores, and removes stores of no lane. Runs
// after all optimisations, which make masks constant. LLVM 22.1 merges the narrowing of a vector with its masked
// store; where the mask is a constant with one lane, it then stores that lane before it is narrowed (llvm-project
// issue 179489, X86 with AVX-512): up to seven bytes after the element, which may be outside the buffer.
void StoreOneLanePlainly(llvm::Module& module);
StatusOr<std::string> GenerateCode(llvm::Module& module, llvm::TargetMachine& machine, FileKind kind);

// In image.cc. Functions whose stack frames exceed kCpuFrameBytesMax; LinkImage does not check this.
struct Frame {
  std::string function;
  uint64_t bytes = 0;
  uint64_t place = 0;  // Offset in the object's table of frames.
};
StatusOr<std::vector<Frame>> LargeFrames(std::string_view object);

// Lays out the object's code and constants as one image and resolves references between them. Returns kInternal for a
// relocation that is not PC-relative, an external symbol, writable data, or a missing entry.
struct LinkedImage {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> entry_offsets;  // For the requested entries.
};
StatusOr<LinkedImage> LinkImage(std::string_view object, std::span<const std::string> entries);

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_CODEGEN_H_
