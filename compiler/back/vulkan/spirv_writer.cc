// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/vulkan/spirv_writer.h"

#include <cstring>

namespace hpvm::vulkan {
namespace {

using Words = std::vector<uint32_t>;

void Append(Words& to, std::span<const uint32_t> words) { to.insert(to.end(), words.begin(), words.end()); }

// Returns the string, zero-terminated and padded to whole words.
Words StringWords(std::string_view text) {
  Words words(text.size() / 4 + 1, 0);
  std::memcpy(words.data(), text.data(), text.size());
  return words;
}

void Instruction(Words& to, spv::Op op, std::span<const uint32_t> operands) {
  to.push_back(static_cast<uint32_t>(operands.size() + 1) << spv::WordCountShift | static_cast<uint32_t>(op));
  Append(to, operands);
}

void Instruction(Words& to, spv::Op op, std::initializer_list<uint32_t> operands) {
  Instruction(to, op, std::span<const uint32_t>(operands.begin(), operands.size()));
}

// Appends the type, the result, then the operands.
void TypedInstruction(Words& to, spv::Op op, SpvId type, SpvId result, std::span<const uint32_t> operands) {
  to.push_back(static_cast<uint32_t>(operands.size() + 3) << spv::WordCountShift | static_cast<uint32_t>(op));
  to.push_back(type);
  to.push_back(result);
  Append(to, operands);
}

}  // namespace

SpirvWriter::SpirvWriter() : glsl_(NewId()) {}

void SpirvWriter::EntryPoint(SpvId function, std::string_view name, std::span<const SpvId> interface) {
  Words words{spv::ExecutionModelGLCompute, function};
  Append(words, StringWords(name));
  Append(words, interface);
  Instruction(entries_, spv::OpEntryPoint, words);
}

void SpirvWriter::ExecutionMode(SpvId function, spv::ExecutionMode mode, std::initializer_list<uint32_t> operands) {
  Words words{function, static_cast<uint32_t>(mode)};
  words.insert(words.end(), operands.begin(), operands.end());
  Instruction(modes_, spv::OpExecutionMode, words);
}

void SpirvWriter::Name(SpvId id, std::string_view name) {
  Words words{id};
  Append(words, StringWords(name));
  Instruction(names_, spv::OpName, words);
}

void SpirvWriter::Decorate(SpvId id, spv::Decoration decoration, std::initializer_list<uint32_t> operands) {
  Words words{id, static_cast<uint32_t>(decoration)};
  words.insert(words.end(), operands.begin(), operands.end());
  Instruction(decorations_, spv::OpDecorate, words);
}

void SpirvWriter::DecorateMember(SpvId id, uint32_t member, spv::Decoration decoration,
                                 std::initializer_list<uint32_t> operands) {
  Words words{id, member, static_cast<uint32_t>(decoration)};
  words.insert(words.end(), operands.begin(), operands.end());
  Instruction(decorations_, spv::OpMemberDecorate, words);
}

SpvId SpirvWriter::Unique(spv::Op op, std::initializer_list<uint32_t> operands) {
  Words key{static_cast<uint32_t>(op)};
  key.insert(key.end(), operands.begin(), operands.end());
  SpvId& id = unique_[key];
  if (id == 0) {
    id = NewId();
    key[0] = id;
    Instruction(globals_, op, key);
  }
  return id;
}

SpvId SpirvWriter::UniqueTyped(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands) {
  Words key{static_cast<uint32_t>(op), type};
  key.insert(key.end(), operands.begin(), operands.end());
  SpvId& id = unique_[key];
  if (id == 0) {
    id = NewId();
    TypedInstruction(globals_, op, type, id, std::span<const uint32_t>(operands.begin(), operands.size()));
  }
  return id;
}

SpvId SpirvWriter::UniqueConstant(SpvId type, std::initializer_list<uint32_t> words) {
  const SpvId id = UniqueTyped(spv::OpConstant, type, words);
  if (words.size() == 1 && type == Int(32)) {
    words_of_constants_[id] = *words.begin();
  }
  return id;
}

bool SpirvWriter::IsU32(SpvId id, uint32_t* value) const {
  const auto found = words_of_constants_.find(id);
  if (found == words_of_constants_.end()) {
    return false;
  }
  *value = found->second;
  return true;
}

SpvId SpirvWriter::FunctionType(SpvId result, std::span<const SpvId> params) {
  Words key{static_cast<uint32_t>(spv::OpTypeFunction), result};
  Append(key, params);
  SpvId& id = unique_[key];
  if (id == 0) {
    id = NewId();
    key[0] = id;
    Instruction(globals_, spv::OpTypeFunction, key);
  }
  return id;
}

SpvId SpirvWriter::Composite(SpvId type, std::span<const SpvId> parts) {
  const SpvId id = NewId();
  TypedInstruction(globals_, spv::OpConstantComposite, type, id, parts);
  return id;
}

void SpirvWriter::Global(spv::Op op, std::span<const uint32_t> words) { Instruction(globals_, op, words); }

SpvId SpirvWriter::GlobalWithType(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands) {
  const SpvId id = NewId();
  TypedInstruction(globals_, op, type, id, std::span<const uint32_t>(operands.begin(), operands.size()));
  return id;
}

SpvId SpirvWriter::GlobalVariable(spv::StorageClass storage, SpvId type, SpvId initial) {
  const SpvId pointer = Pointer(storage, type);
  return initial == 0 ? GlobalWithType(spv::OpVariable, pointer, {static_cast<uint32_t>(storage)})
                      : GlobalWithType(spv::OpVariable, pointer, {static_cast<uint32_t>(storage), initial});
}

void SpirvWriter::CloseFunction() {
  SpirvFunction& function = *open_.back();
  open_.pop_back();
  Append(functions_, function.head);
  Append(functions_, function.variables);
  Append(functions_, function.body);
  Instruction(functions_, spv::OpFunctionEnd, {});
}

SpvId SpirvWriter::Op(spv::Op op, SpvId type, std::span<const uint32_t> operands) {
  const SpvId id = NewId();
  TypedInstruction(open_.back()->body, op, type, id, operands);
  return id;
}

SpvId SpirvWriter::Op(spv::Op op, SpvId type, std::initializer_list<uint32_t> operands) {
  return Op(op, type, std::span<const uint32_t>(operands.begin(), operands.size()));
}

void SpirvWriter::Do(spv::Op op, std::span<const uint32_t> operands) {
  Instruction(open_.back()->body, op, operands);
}

void SpirvWriter::Do(spv::Op op, std::initializer_list<uint32_t> operands) {
  Instruction(open_.back()->body, op, operands);
}

SpvId SpirvWriter::Ext(uint32_t instruction, SpvId type, std::initializer_list<uint32_t> operands) {
  Words words{glsl_, instruction};
  words.insert(words.end(), operands.begin(), operands.end());
  return Op(spv::OpExtInst, type, words);
}

SpvId SpirvWriter::LocalVariable(SpvId type, SpvId initial) {
  const SpvId id = NewId();
  Words words{spv::StorageClassFunction};
  if (initial != 0) {
    words.push_back(initial);
  }
  TypedInstruction(open_.back()->variables, spv::OpVariable, Pointer(spv::StorageClassFunction, type), id, words);
  return id;
}

std::vector<uint32_t> SpirvWriter::Finish(uint32_t version) {
  Words words{spv::MagicNumber, version, 0, bound_, 0};
  for (const spv::Capability capability : capabilities_) {
    Instruction(words, spv::OpCapability, {static_cast<uint32_t>(capability)});
  }
  for (const std::string& extension : extensions_) {
    Instruction(words, spv::OpExtension, StringWords(extension));
  }
  Words import{glsl_};
  Append(import, StringWords("GLSL.std.450"));
  Instruction(words, spv::OpExtInstImport, import);
  Instruction(words, spv::OpMemoryModel, {spv::AddressingModelLogical, spv::MemoryModelGLSL450});
  for (const Words* part : {&entries_, &modes_, &names_, &decorations_, &globals_, &functions_}) {
    Append(words, *part);
  }
  return words;
}

}  // namespace hpvm::vulkan
