// SPDX-License-Identifier: Apache-2.0
// Reads what the entry points of a SPIR-V module declare (SPIR-V Specification 1.6, section 3). The reader accepts any
// bytes: it looks at no word outside an instruction's length, and follows types to a fixed depth. A module that the
// validator would refuse may yield nonsense, never a fault.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "client/ctl/kernel/module_entries.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::ctl {
namespace {

constexpr size_t kHeadWords = 5;
constexpr int kDepthMax = 8;           // Nested types.
constexpr uint64_t kScalarsMax = 256;  // Push constants of one entry point.

using Words = std::span<const uint32_t>;
using Param = DeclaredKernel::Param;

class SpirvModule {
 public:
  // Returns false when an instruction has no length or reaches beyond the end.
  bool Read(Words words) {
    for (size_t at = kHeadWords; at < words.size();) {
      const size_t length = words[at] >> 16;
      if (length == 0 || length > words.size() - at) {
        return false;
      }
      Visit(words.subspan(at, length));
      at += length;
    }
    return true;
  }

  std::vector<DeclaredKernel> Kernels() const {
    std::vector<DeclaredKernel> kernels;
    for (const Words entry : entries_) {
      const bool is_kernel = At(entry, 1) == spv::ExecutionModelKernel;
      if (is_kernel || At(entry, 1) == spv::ExecutionModelGLCompute) {
        DeclaredKernel& kernel = kernels.emplace_back();
        kernel.name = Text(entry.subspan(std::min<size_t>(entry.size(), 3)));
        kernel.params = is_kernel ? KernelParams(At(entry, 2)) : ShaderParams();
        kernel.may_leave_out = !is_kernel;
        NameParams(&kernel.params);
      }
    }
    return kernels;
  }

 private:
  // Returns word `i` of an instruction; 0 beyond its end.
  static uint32_t At(Words instruction, size_t i) { return i < instruction.size() ? instruction[i] : 0; }
  static std::string Text(Words words) {
    std::string text(reinterpret_cast<const char*>(words.data()), words.size_bytes());
    return text.substr(0, text.find('\0'));
  }

  void Visit(Words at) {
    switch (at[0] & 0xffff) {
      case spv::OpEntryPoint:
        entries_.push_back(at);
        break;
      case spv::OpName:
        names_[At(at, 1)] = Text(at.subspan(std::min<size_t>(at.size(), 2)));
        break;
      case spv::OpMemberName:
        member_names_[{At(at, 1), At(at, 2)}] = Text(at.subspan(std::min<size_t>(at.size(), 3)));
        break;
      case spv::OpDecorate:
        decorations_[{At(at, 1), At(at, 2)}].insert(At(at, 3));
        break;
      case spv::OpMemberDecorate:
        member_decorations_[{At(at, 1), At(at, 2), At(at, 3)}] = At(at, 4);
        break;
      case spv::OpConstant:
        constants_[At(at, 2)] = At(at, 3);
        break;
      case spv::OpFunction:
        function_ = At(at, 2);
        break;
      case spv::OpFunctionParameter:
        parameters_[function_].push_back(at);
        break;
      case spv::OpVariable:
        variables_.push_back(at);
        break;
      default:
        if ((at[0] & 0xffff) >= spv::OpTypeVoid && (at[0] & 0xffff) <= spv::OpTypePointer) {
          types_[At(at, 1)] = at;
        }
    }
  }

  bool Has(uint32_t id, spv::Decoration decoration) const { return decorations_.contains({id, decoration}); }
  uint32_t Find(uint32_t id, spv::Decoration decoration) const {
    const auto found = decorations_.find({id, decoration});
    return found == decorations_.end() ? 0 : *found->second.begin();
  }
  std::string NameOf(uint32_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "" : found->second;
  }
  std::string NameOfMember(uint32_t id, uint32_t member) const {
    const auto found = member_names_.find({id, member});
    return found == member_names_.end() ? "" : found->second;
  }
  Words TypeOf(uint32_t id) const {
    const auto found = types_.find(id);
    return found == types_.end() ? Words() : found->second;
  }
  static uint32_t Opcode(Words at) { return At(at, 0) & 0xffff; }

  // Returns the documents' name for the numbers that the type consists of; empty when there is none.
  std::string ElementOf(uint32_t id, int depth = 0) const {
    const Words type = TypeOf(id);
    if (depth == kDepthMax) {
      return "";
    }
    switch (Opcode(type)) {
      case spv::OpTypeInt:
        return (At(type, 3) != 0 ? "i" : "u") + std::to_string(At(type, 2));
      case spv::OpTypeFloat:
        return "f" + std::to_string(At(type, 2));
      case spv::OpTypeVector:
      case spv::OpTypeArray:
      case spv::OpTypeRuntimeArray:
        return ElementOf(At(type, 2), depth + 1);
      case spv::OpTypeStruct: {
        std::string element = ElementOf(At(type, 2), depth + 1);
        for (size_t i = 3; i < type.size(); ++i) {
          if (ElementOf(type[i], depth + 1) != element) {
            return "";
          }
        }
        return element;
      }
      default:
        return "";
    }
  }

  std::vector<Param> KernelParams(uint32_t function) const {
    std::vector<Param> params;
    const auto found = parameters_.find(function);
    for (const Words at : found == parameters_.end() ? std::vector<Words>() : found->second) {
      Param& param = params.emplace_back();
      param.name = NameOf(At(at, 2));
      const Words type = TypeOf(At(at, 1));
      if (Opcode(type) != spv::OpTypePointer) {
        param.type = ElementOf(At(at, 1));
        continue;
      }
      const uint32_t storage = At(type, 2);
      param.is_buffer = storage == spv::StorageClassCrossWorkgroup || storage == spv::StorageClassUniformConstant;
      const auto attributes = decorations_.find({At(at, 2), spv::DecorationFuncParamAttr});
      param.is_const =
          storage == spv::StorageClassUniformConstant ||
          (attributes != decorations_.end() && attributes->second.contains(spv::FunctionParameterAttributeNoWrite));
      param.type = param.is_buffer ? ElementOf(At(type, 3)) : "";
      param.is_signless = param.type.starts_with('u');  // OpenCL's modules have one kind of integers.
    }
    return params;
  }

  bool IsReadOnly(uint32_t variable, uint32_t block) const {
    bool all = TypeOf(block).size() > 2;
    for (uint32_t i = 0; i + 2 < TypeOf(block).size(); ++i) {
      all = all && member_decorations_.contains({block, i, spv::DecorationNonWritable});
    }
    return all || Has(variable, spv::DecorationNonWritable);
  }

  Param BufferOf(uint32_t variable, uint32_t block, bool is_uniform) const {
    const Words type = TypeOf(block);
    Param param;
    param.name = NameOf(variable);
    if (param.name.empty()) {
      param.name = type.size() == 3 ? NameOfMember(block, 0) : NameOf(block);
    }
    param.is_buffer = true;
    param.is_const = is_uniform || IsReadOnly(variable, block);
    // The elements of a struct are those of its last member, which alone may have any size.
    param.type = type.size() > 2 ? ElementOf(type.back()) : "";
    return param;
  }

  void AppendScalars(uint32_t id, uint64_t offset, const std::string& name, int depth,
                     std::multimap<uint64_t, Param>* scalars) const {
    const Words type = TypeOf(id);
    if (depth == kDepthMax || scalars->size() >= kScalarsMax) {
      return;
    }
    if (Opcode(type) == spv::OpTypeStruct) {
      for (uint32_t i = 0; i + 2 < type.size(); ++i) {
        const auto at = member_decorations_.find({id, i, spv::DecorationOffset});
        AppendScalars(type[i + 2], offset + (at == member_decorations_.end() ? 0 : at->second), NameOfMember(id, i),
                      depth + 1, scalars);
      }
      return;
    }
    const bool is_array = Opcode(type) == spv::OpTypeArray;
    const auto length = constants_.find(At(type, 3));
    const uint64_t count = Opcode(type) == spv::OpTypeVector ? At(type, 3)
                           : is_array                        ? (length == constants_.end() ? 0 : length->second)
                                                             : 1;
    const uint32_t bytes = At(TypeOf(At(type, 2)), 2) / 8;
    const uint64_t stride = is_array ? Find(id, spv::DecorationArrayStride) : bytes;
    if (count == 1 && !is_array) {
      scalars->emplace(offset, Param{.name = name, .type = ElementOf(id)});
      return;
    }
    for (uint64_t i = 0; i < std::min(count, kScalarsMax); ++i) {
      AppendScalars(At(type, 2), offset + i * stride, name + "_" + std::to_string(i), depth + 1, scalars);
    }
  }

  // Buffers by set and binding, then push constants by offset, as servers match them with the node's ports and scalars.
  std::vector<Param> ShaderParams() const {
    std::map<std::pair<uint32_t, uint32_t>, Param> buffers;
    std::multimap<uint64_t, Param> scalars;
    for (const Words at : variables_) {
      const uint32_t variable = At(at, 2), storage = At(at, 3), block = At(TypeOf(At(at, 1)), 3);
      // Servers turn uniform blocks into storage buffers.
      if (storage == spv::StorageClassStorageBuffer || storage == spv::StorageClassUniform) {
        const bool is_uniform = storage == spv::StorageClassUniform && !Has(block, spv::DecorationBufferBlock);
        const std::pair binding{Find(variable, spv::DecorationDescriptorSet), Find(variable, spv::DecorationBinding)};
        const auto [found, is_new] = buffers.try_emplace(binding, BufferOf(variable, block, is_uniform));
        if (!is_new) {
          found->second.is_const = found->second.is_const && (is_uniform || IsReadOnly(variable, block));
        }
      } else if (storage == spv::StorageClassPushConstant) {
        // Entry points may have blocks of their own; the longest is the limit for all of them.
        std::multimap<uint64_t, Param> found;
        AppendScalars(block, 0, "", 0, &found);
        if (found.size() > scalars.size()) {
          scalars = std::move(found);
        }
      }
    }
    std::vector<Param> params;
    for (auto& [binding, param] : buffers) {
      params.push_back(std::move(param));
    }
    for (auto& [offset, param] : scalars) {
      params.push_back(std::move(param));
    }
    return params;
  }

  // Gives a name to parameters that have none or one that documents cannot use.
  static void NameParams(std::vector<Param>* params) {
    std::set<std::string> names;
    for (size_t i = 0; i < params->size(); ++i) {
      std::string& name = (*params)[i].name;
      const bool is_word = !name.empty() && isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                           std::all_of(name.begin(), name.end(),
                                       [](char c) { return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
      if (!is_word || !names.insert(name).second) {
        name = "p" + std::to_string(i);
        names.insert(name);
      }
    }
  }

  std::vector<Words> entries_, variables_;
  std::map<uint32_t, Words> types_;  // Keyed by id, like the following.
  std::map<uint32_t, uint32_t> constants_;
  std::map<uint32_t, std::string> names_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> member_names_;
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint32_t>> decorations_;
  std::map<std::array<uint32_t, 3>, uint32_t> member_decorations_;
  std::map<uint32_t, std::vector<Words>> parameters_;  // Keyed by function.
  uint32_t function_ = 0;
};

}  // namespace

StatusOr<std::vector<DeclaredKernel>> KernelsOfSpirv(std::string_view bytes) {
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  if (!words.empty()) {
    std::memcpy(words.data(), bytes.data(), words.size() * sizeof(uint32_t));
  }
  SpirvModule module;
  if (words.size() < kHeadWords || words[0] != spv::MagicNumber || bytes.size() % sizeof(uint32_t) != 0 ||
      !module.Read(words)) {
    return InvalidArgument("The file is not a SPIR-V module, or is damaged.");
  }
  return module.Kernels();
}

}  // namespace hpvm::ctl
