// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/shaders/zero_groups.h"

#include <cstring>
#include <span>
#include <string>
#include <unordered_map>

namespace hpvm::vulkan {
namespace {

constexpr uint32_t kMagic = 0x07230203, kHeaderWords = 5, kBoundWord = 3;
constexpr uint32_t kBoundMax = 0x3fffff;  // SPIR-V's universal limit.
constexpr uint16_t kTypePointer = 32, kConstantNull = 46, kVariable = 59;
constexpr uint32_t kWorkgroup = 4;

uint32_t Head(uint32_t words, uint16_t opcode) { return words << 16 | opcode; }

class Rewriter {
 public:
  explicit Rewriter(std::vector<uint32_t> words) : words_(std::move(words)) {}

  StatusOr<std::vector<uint32_t>> Run() {
    out_.assign(words_.begin(), words_.begin() + kHeaderWords);
    for (size_t at = kHeaderWords; at < words_.size();) {
      const size_t count = words_[at] >> 16;
      if (count == 0 || count > words_.size() - at) {
        return InvalidArgument("The module's instruction at word " + std::to_string(at) +
                               " reaches beyond the module's end.");
      }
      HPVMD_RETURN_IF_ERROR(Take({&words_[at], count}));
      at += count;
    }
    return has_changed_ ? std::move(out_) : std::vector<uint32_t>();
  }

 private:
  Status Take(std::span<const uint32_t> instruction) {
    const auto opcode = static_cast<uint16_t>(instruction[0]);
    if (opcode == kTypePointer && instruction.size() == 4 && instruction[2] == kWorkgroup) {
      pointee_[instruction[1]] = instruction[3];
    }
    const bool is_bare = opcode == kVariable && instruction.size() == 4 && instruction[3] == kWorkgroup;
    if (!is_bare) {
      out_.insert(out_.end(), instruction.begin(), instruction.end());
      return absl::OkStatus();
    }
    const auto type = pointee_.find(instruction[1]);
    if (type == pointee_.end() || out_[kBoundWord] >= kBoundMax) {
      return InvalidArgument("The module's variable " + std::to_string(instruction[2]) +
                             " in group memory has no type, or the module has too many ids.");
    }
    const uint32_t zero = out_[kBoundWord]++;
    // Constants and variables of a module are in one section.
    out_.insert(out_.end(), {Head(3, kConstantNull), type->second, zero});
    out_.insert(out_.end(), {Head(5, kVariable), instruction[1], instruction[2], kWorkgroup, zero});
    has_changed_ = true;
    return absl::OkStatus();
  }

  const std::vector<uint32_t> words_;
  std::vector<uint32_t> out_;
  std::unordered_map<uint32_t, uint32_t> pointee_;  // Keyed by pointer type.
  bool has_changed_ = false;
};

}  // namespace

StatusOr<std::vector<uint8_t>> ZeroGroupMemory(const std::vector<uint8_t>& module) {
  std::vector<uint32_t> words(module.size() / 4);
  std::memcpy(words.data(), module.data(), words.size() * 4);
  if (module.size() % 4 != 0 || words.size() < kHeaderWords || words[0] != kMagic) {
    return InvalidArgument("The kernel's code (" + std::to_string(module.size()) + " bytes) is not a SPIR-V module.");
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint32_t> rewritten, Rewriter(std::move(words)).Run());
  std::vector<uint8_t> bytes(rewritten.size() * 4);
  std::memcpy(bytes.data(), rewritten.data(), bytes.size());
  return bytes;
}

}  // namespace hpvm::vulkan
