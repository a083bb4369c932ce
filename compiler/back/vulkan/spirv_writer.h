// SPDX-License-Identifier: Apache-2.0
// SpirvWriter builds a SPIR-V module: instruction words in the order that the specification requires, with unique
// types and constants. It knows only the binary form, not kernels.
#ifndef HPVMD_COMPILER_BACK_VULKAN_SPIRV_WRITER_H_
#define HPVMD_COMPILER_BACK_VULKAN_SPIRV_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::vulkan {

using SpvId = uint32_t;  // 0 is not an id.

// Words of one function. Its variables precede the rest of its first block.
struct SpirvFunction {
  std::vector<uint32_t> head, variables, body;
};

class SpirvWriter {
 public:
  SpirvWriter();

  SpvId NewId() { return bound_++; }
  uint32_t bound() const { return bound_; }

  void Capability(spv::Capability capability) { capabilities_.insert(capability); }
  bool Has(spv::Capability capability) const { return capabilities_.count(capability) != 0; }
  void Extension(std::string_view name) { extensions_.emplace(name); }
  void EntryPoint(SpvId function, std::string_view name, std::span<const SpvId> interface);
  void ExecutionMode(SpvId function, spv::ExecutionMode mode, std::initializer_list<uint32_t> operands);
  void Name(SpvId id, std::string_view name);
  void Decorate(SpvId id, spv::Decoration decoration, std::initializer_list<uint32_t> operands = {});
  void DecorateMember(SpvId id, uint32_t member, spv::Decoration decoration,
                      std::initializer_list<uint32_t> operands = {});

  // Types and constants: equal ones share one id.
  SpvId Void() { return Unique(spv::OpTypeVoid, {}); }
  SpvId Bool() { return Unique(spv::OpTypeBool, {}); }
  SpvId Int(uint32_t bits) { return Unique(spv::OpTypeInt, {bits, 0}); }
  SpvId Float(uint32_t bits) { return Unique(spv::OpTypeFloat, {bits}); }
  SpvId Vector(SpvId type, uint32_t count) { return Unique(spv::OpTypeVector, {type, count}); }
  SpvId Pointer(spv::StorageClass storage, SpvId type) {
    return Unique(spv::OpTypePointer, {static_cast<uint32_t>(storage), type});
  }
  SpvId Array(SpvId type, uint32_t count) { return Unique(spv::OpTypeArray, {type, U32(count)}); }
  SpvId FunctionType(SpvId result, std::span<const SpvId> params);
  SpvId U32(uint32_t value) { return UniqueConstant(Int(32), {value}); }
  SpvId U64(uint64_t value) {
    return UniqueConstant(Int(64), {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)});
  }
  SpvId F32(uint32_t bits) { return UniqueConstant(Float(32), {bits}); }
  SpvId F64(uint64_t bits) {
    return UniqueConstant(Float(64), {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)});
  }
  SpvId True() { return UniqueTyped(spv::OpConstantTrue, Bool(), {}); }
  SpvId Null(SpvId type) { return UniqueTyped(spv::OpConstantNull, type, {}); }
  SpvId Composite(SpvId type, std::span<const SpvId> parts);
  // Returns true if the id is a 32-bit constant, and its value.
  bool IsU32(SpvId id, uint32_t* value) const;

  // Global instructions that are never shared: blocks, specialisation constants, variables.
  void Global(spv::Op op, std::span<const uint32_t> words);
  SpvId GlobalWithType(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands);
  SpvId GlobalVariable(spv::StorageClass storage, SpvId type, SpvId initial = 0);

  // Instructions go to the innermost open function; functions may be opened while another one is open.
  void OpenFunction(SpirvFunction* function) { open_.push_back(function); }
  void LeaveFunction() { open_.pop_back(); }  // May be opened again.
  void CloseFunction();                        // Ends it and appends it to the module.
  SpvId Op(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands);
  SpvId Op(spv::Op op, SpvId type, std::span<const uint32_t> operands);
  void Do(spv::Op op, std::initializer_list<uint32_t> operands);
  void Do(spv::Op op, std::span<const uint32_t> operands);
  // Emits an instruction of GLSL.std.450.
  SpvId Ext(uint32_t instruction, SpvId type, std::initializer_list<uint32_t> operands);
  SpvId LocalVariable(SpvId type, SpvId initial = 0);
  void Label(SpvId label) { Do(spv::OpLabel, {label}); }

  std::vector<uint32_t> Finish(uint32_t version);

 private:
  SpvId Unique(spv::Op op, std::initializer_list<uint32_t> operands);
  SpvId UniqueTyped(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands);
  SpvId UniqueConstant(SpvId type, std::initializer_list<uint32_t> words);

  uint32_t bound_ = 1;
  SpvId glsl_ = 0;
  std::set<spv::Capability> capabilities_;
  std::set<std::string> extensions_;
  std::vector<uint32_t> entries_, modes_, names_, decorations_, globals_, functions_;
  std::map<std::vector<uint32_t>, SpvId> unique_;
  std::map<SpvId, uint32_t> words_of_constants_;
  std::vector<SpirvFunction*> open_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_COMPILER_BACK_VULKAN_SPIRV_WRITER_H_
