// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/interface.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::spirv {
namespace {

const std::string kNoName;

}  // namespace

Notes Notes::Read(const Module& module) {
  Notes notes;
  std::vector<const Instruction*> groups;
  for (const Instruction& at : module.instructions) {
    switch (at.opcode) {
      case spv::OpName:
        notes.names_.emplace(module.Word(at, 0), module.Text(at, 1));
        break;
      case spv::OpMemberName:
        notes.member_names_.emplace(std::pair{module.Word(at, 0), module.Word(at, 1)}, module.Text(at, 2));
        break;
      case spv::OpDecorate:
      case spv::OpDecorateId:
        notes.decorations_.emplace(module.Word(at, 0), Decoration{module.Word(at, 1), module.Word(at, 2)});
        break;
      case spv::OpMemberDecorate:
        notes.member_decorations_.emplace(std::pair{module.Word(at, 0), module.Word(at, 1)},
                                          Decoration{module.Word(at, 2), module.Word(at, 3)});
        break;
      case spv::OpGroupDecorate:
        groups.push_back(&at);
        break;
      default:
        break;
    }
  }
  // A group's own decorations precede OpGroupDecorate. Pairs of target and decoration can grow quadratically with the
  // module's size, so groups with many of both are cut off.
  constexpr size_t kDecorationsMax = 1'000'000;
  for (const Instruction* at : groups) {
    const auto [first, last] = notes.decorations_.equal_range(module.Word(*at, 0));
    const std::vector<std::pair<uint32_t, Decoration>> of_group(first, last);
    for (uint32_t i = 1; i + 1 < at->count && notes.decorations_.size() < kDecorationsMax; ++i) {
      for (const auto& [group, decoration] : of_group) {
        notes.decorations_.emplace(module.Word(*at, i), decoration);
      }
    }
  }
  return notes;
}

std::optional<uint32_t> Notes::Find(uint32_t id, uint32_t decoration) const {
  for (auto [at, last] = decorations_.equal_range(id); at != last; ++at) {
    if (at->second.kind == decoration) {
      return at->second.literal;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> Notes::FindOfMember(uint32_t id, uint32_t member, uint32_t decoration) const {
  for (auto [at, last] = member_decorations_.equal_range({id, member}); at != last; ++at) {
    if (at->second.kind == decoration) {
      return at->second.literal;
    }
  }
  return std::nullopt;
}

const std::string& Notes::NameOf(uint32_t id) const {
  const auto found = names_.find(id);
  return found == names_.end() ? kNoName : found->second;
}

const std::string& Notes::NameOfMember(uint32_t id, uint32_t member) const {
  const auto found = member_names_.find({id, member});
  return found == member_names_.end() ? kNoName : found->second;
}

std::vector<std::pair<uint32_t, uint32_t>> Notes::All(uint32_t decoration) const {
  std::vector<std::pair<uint32_t, uint32_t>> all;
  for (const auto& [id, item] : decorations_) {
    if (item.kind == decoration) {
      all.push_back({id, item.literal});
    }
  }
  return all;
}

}  // namespace hpvm::spirv
