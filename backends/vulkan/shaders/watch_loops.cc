// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/shaders/watch_loops.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "compiler/ir/ir.h"
#include "compiler/ir/loops_cut.h"

namespace hpvm::vulkan {
namespace {

// The parts of SPIR-V that are read or written.
constexpr uint32_t kMagic = 0x07230203, kHeaderWords = 5, kVersionWord = 1, kBoundWord = 3, kBoundMax = 0x3fffff;
constexpr uint32_t kVersion13 = 0x00010300, kVersion14 = 0x00010400;
enum Op : uint16_t {
  kEntryPoint = 15,
  kExecutionMode = 16,
  kCapability = 17,
  kTypeVoid = 19,
  kTypeBool = 20,
  kTypeInt = 21,
  kTypeArray = 28,
  kTypeStruct = 30,
  kTypePointer = 32,
  kTypeFunction = 33,
  kTypeForwardPointer = 39,
  kConstant = 43,
  kConstantNull = 46,
  kSpecConstantOp = 52,
  kFunction = 54,
  kFunctionEnd = 56,
  kFunctionCall = 57,
  kVariable = 59,
  kLoad = 61,
  kStore = 62,
  kAccessChain = 65,
  kDecorate = 71,
  kMemberDecorate = 72,
  kIAdd = 128,
  kUGreaterThanEqual = 174,
  kLoopMerge = 246,
  kSelectionMerge = 247,
  kLabel = 248,
  kBranch = 249,
  kBranchConditional = 250,
  kReturn = 253,
  kExecutionModeId = 331,
};
constexpr uint32_t kGlCompute = 5, kGroupNonUniform = 61, kInput = 1, kWorkgroup = 4, kStorageBuffer = 12;
constexpr uint32_t kBlock = 2, kArrayStride = 6, kBuiltIn = 11, kBinding = 33, kDescriptorSet = 34, kOffset = 35;
constexpr uint32_t kSubgroupId = 40, kVolatile = 1;

// The driver's own loops, which clear group memory, also count: at most one round for each 16 bytes.
constexpr uint32_t kRoundsOfDriver = 2'500;
constexpr uint32_t kRecordWords = sizeof(GpuTrapRecord) / 4;

struct Instruction {
  uint16_t op = 0;
  std::span<const uint32_t> words;
};

class Watcher {
 public:
  Watcher(const GpuTarget& target, std::vector<uint32_t> words, uint32_t binding)
      : target_(target), words_(std::move(words)), binding_(binding) {}

  // Returns an empty vector when there is no loop.
  StatusOr<std::vector<uint32_t>> Run() {
    HPVMD_RETURN_IF_ERROR(Scan());
    if (!has_loop_) {
      return std::vector<uint32_t>();
    }
    out_.assign(words_.begin(), words_.begin() + kHeaderWords);
    out_[kVersionWord] = std::max(out_[kVersionWord], kVersion13);
    NameIds();
    for (const Instruction& one : instructions_) {
      Copy(one);
    }
    for (const Entry& entry : entries_) {
      WriteWrapper(entry);
    }
    out_[kBoundWord] = bound_;
    return std::move(out_);
  }

 private:
  struct Entry {
    uint32_t function = 0, wrapper = 0;
  };

  Status Scan() {
    for (size_t at = kHeaderWords; at < words_.size();) {
      const size_t count = words_[at] >> 16;
      if (count == 0 || count > words_.size() - at) {
        return InvalidArgument("The module's instruction at word " + std::to_string(at) +
                               " reaches beyond the module's end.");
      }
      instructions_.push_back({static_cast<uint16_t>(words_[at]), {&words_[at], count}});
      Look(instructions_.back());
      at += count;
    }
    bound_ = words_[kBoundWord];
    const bool is_plain = void_ != 0 && function_type_ != 0;  // True for any module with an entry point.
    if (has_loop_ && (!is_plain || bound_ >= kBoundMax - 1'000 || entries_.size() > 64)) {
      return InvalidArgument("The module has too many ids or entry points for its loops to be watched.");
    }
    return absl::OkStatus();
  }

  void Look(const Instruction& one) {
    const std::span<const uint32_t> w = one.words;
    has_loop_ = has_loop_ || one.op == kLoopMerge;
    if (w.size() < 2) {
      return;
    }
    if (one.op == kEntryPoint && w.size() > 3 && w[1] == kGlCompute) {
      entries_.push_back({w[2], 0});
    } else if (one.op == kCapability && w.size() == 2 && w[1] == kGroupNonUniform) {
      has_capability_ = true;
    } else if (one.op == kTypeVoid) {
      void_ = w[1];
    } else if (one.op == kTypeBool) {
      bool_ = w[1];
    } else if (one.op == kTypeInt && w.size() == 4 && w[2] == 32 && w[3] == 0) {
      u32_ = w[1];
    } else if (one.op == kTypeFunction && w.size() == 3 && w[2] == void_) {
      function_type_ = w[1];
    } else if (one.op == kDecorate && w.size() == 4 && w[2] == kBuiltIn && w[3] == kSubgroupId) {
      subgroup_ = w[1];
    }
  }

  uint32_t NewId() { return bound_++; }

  void NameIds() {
    has_subgroup_ = subgroup_ != 0;
    subgroup_ = has_subgroup_ ? subgroup_ : NewId();
    needs_u32_ = u32_ == 0;
    u32_ = needs_u32_ ? NewId() : u32_;
    needs_bool_ = bool_ == 0;
    bool_ = needs_bool_ ? NewId() : bool_;
    for (uint32_t* id : {&counters_, &record_, &record_array_, &record_block_, &zero_, &one_, &limit_, &code_, &length_,
                         &record_length_, &counter_array_, &counters_null_, &to_input_, &to_counters_, &to_counter_,
                         &to_record_, &to_word_}) {
      *id = NewId();
    }
    for (Entry& entry : entries_) {
      entry.wrapper = NewId();
    }
  }

  void Put(Op op, std::initializer_list<uint32_t> operands) {
    out_.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | op);
    out_.insert(out_.end(), operands);
  }

  const Entry* EntryOf(uint32_t function) const {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.function == function; });
    return found == entries_.end() ? nullptr : &*found;
  }

  void Copy(const Instruction& one) {
    const bool is_capability = one.op == kCapability;
    if (!is_capability && !has_capability_) {
      Put(kCapability, {kGroupNonUniform});
      has_capability_ = true;
    }
    const bool is_type = (one.op >= kTypeVoid && one.op <= kTypeForwardPointer) ||
                         (one.op > kTypeForwardPointer && one.op <= kSpecConstantOp) || one.op == kVariable;
    if (is_type && !is_decorated_) {
      is_decorated_ = true;
      Decorate();
    }
    if (one.op == kFunction && !is_declared_) {
      is_declared_ = true;
      Declare();
    }
    if (one.op == kLoopMerge) {
      Count();
    }
    const size_t at = out_.size();
    out_.insert(out_.end(), one.words.begin(), one.words.end());
    if (one.op == kEntryPoint && one.words.size() > 3) {
      CopyEntry(at);
    } else if ((one.op == kExecutionMode || one.op == kExecutionModeId) && one.words.size() > 1) {
      const Entry* entry = EntryOf(out_[at + 1]);
      out_[at + 1] = entry != nullptr ? entry->wrapper : out_[at + 1];
    }
  }

  void CopyEntry(size_t at) {
    const Entry* entry = EntryOf(out_[at + 2]);
    if (entry == nullptr) {
      return;
    }
    out_[at + 2] = entry->wrapper;
    std::vector<uint32_t> more;
    if (std::find(out_.begin() + static_cast<ptrdiff_t>(at) + 3, out_.end(), subgroup_) == out_.end()) {
      more.push_back(subgroup_);
    }
    if (words_[kVersionWord] >= kVersion14) {
      more.insert(more.end(), {counters_, record_});
    }
    out_.insert(out_.end(), more.begin(), more.end());
    out_[at] += static_cast<uint32_t>(more.size()) << 16;
  }

  void Decorate() {
    if (!has_subgroup_) {
      Put(kDecorate, {subgroup_, kBuiltIn, kSubgroupId});
    }
    Put(kDecorate, {record_array_, kArrayStride, 4});
    Put(kDecorate, {record_block_, kBlock});
    Put(kMemberDecorate, {record_block_, 0, kOffset, 0});
    Put(kDecorate, {record_, kDescriptorSet, 0});
    Put(kDecorate, {record_, kBinding, binding_});
  }

  void Declare() {
    if (needs_u32_) {
      Put(kTypeInt, {u32_, 32, 0});
    }
    if (needs_bool_) {
      Put(kTypeBool, {bool_});
    }
    Put(kConstant, {u32_, zero_, 0});
    Put(kConstant, {u32_, one_, 1});
    Put(kConstant, {u32_, limit_, ir::kLlvmpipeLoopRounds - kRoundsOfDriver});
    Put(kConstant, {u32_, code_, static_cast<uint32_t>(ir::kLoopsCut)});
    Put(kConstant, {u32_, length_, target_.group_size_max});
    Put(kConstant, {u32_, record_length_, kRecordWords});
    Put(kTypeArray, {counter_array_, u32_, length_});
    Put(kConstantNull, {counter_array_, counters_null_});
    Put(kTypePointer, {to_counters_, kWorkgroup, counter_array_});
    Put(kTypePointer, {to_counter_, kWorkgroup, u32_});
    Put(kVariable, {to_counters_, counters_, kWorkgroup, counters_null_});
    Put(kTypePointer, {to_input_, kInput, u32_});
    if (!has_subgroup_) {
      Put(kVariable, {to_input_, subgroup_, kInput});
    }
    Put(kTypeArray, {record_array_, u32_, record_length_});
    Put(kTypeStruct, {record_block_, record_array_});
    Put(kTypePointer, {to_record_, kStorageBuffer, record_block_});
    Put(kTypePointer, {to_word_, kStorageBuffer, u32_});
    Put(kVariable, {to_record_, record_, kStorageBuffer});
  }

  // Returns a pointer to the vector's word.
  uint32_t Counter() {
    const uint32_t subgroup = NewId(), pointer = NewId();
    Put(kLoad, {u32_, subgroup, subgroup_});
    Put(kAccessChain, {to_counter_, pointer, counters_, subgroup});
    return pointer;
  }

  void Count() {
    const uint32_t pointer = Counter(), before = NewId(), after = NewId();
    Put(kLoad, {u32_, before, pointer, kVolatile});
    Put(kIAdd, {u32_, after, before, one_});
    Put(kStore, {pointer, after, kVolatile});
  }

  void WriteWrapper(const Entry& entry) {
    const uint32_t nothing = NewId(), rounds = NewId(), is_cut = NewId(), yes = NewId(), end = NewId();
    Put(kFunction, {void_, entry.wrapper, 0, function_type_});
    Put(kLabel, {NewId()});
    Put(kFunctionCall, {void_, nothing, entry.function});
    const uint32_t pointer = Counter();
    Put(kLoad, {u32_, rounds, pointer, kVolatile});
    Put(kUGreaterThanEqual, {bool_, is_cut, rounds, limit_});
    Put(kSelectionMerge, {end, 0});
    Put(kBranchConditional, {is_cut, yes, end});
    Put(kLabel, {yes});
    for (const auto& [index, value] : {std::pair(one_, code_), std::pair(zero_, one_)}) {
      const uint32_t word = NewId();
      Put(kAccessChain, {to_word_, word, record_, zero_, index});
      Put(kStore, {word, value});
    }
    Put(kBranch, {end});
    Put(kLabel, {end});
    Put(kReturn, {});
    Put(kFunctionEnd, {});
  }

  const GpuTarget& target_;
  const std::vector<uint32_t> words_;
  const uint32_t binding_;
  std::vector<uint32_t> out_;
  std::vector<Instruction> instructions_;
  std::vector<Entry> entries_;
  uint32_t bound_ = 0, void_ = 0, bool_ = 0, u32_ = 0, function_type_ = 0, subgroup_ = 0;
  bool has_loop_ = false, has_capability_ = false, has_subgroup_ = false, needs_u32_ = false, needs_bool_ = false;
  bool is_decorated_ = false, is_declared_ = false;
  uint32_t counters_ = 0, record_ = 0, record_array_ = 0, record_block_ = 0, zero_ = 0, one_ = 0, limit_ = 0, code_ = 0;
  uint32_t length_ = 0, record_length_ = 0, counter_array_ = 0, counters_null_ = 0, to_input_ = 0, to_counters_ = 0;
  uint32_t to_counter_ = 0, to_record_ = 0, to_word_ = 0;
};

}  // namespace

Status WatchLoops(const GpuTarget& target, std::vector<uint8_t>& code, GpuVariant& variant) {
  std::vector<uint32_t> words(code.size() / 4);
  std::memcpy(words.data(), code.data(), words.size() * 4);
  if (code.size() % 4 != 0 || words.size() < kHeaderWords || words[0] != kMagic) {
    return InvalidArgument("The kernel's code (" + std::to_string(code.size()) + " bytes) is not a SPIR-V module.");
  }
  GpuArgument record;
  record.kind = GpuArgument::Kind::kTrapRecord;
  record.is_writable = true;
  for (const GpuArgument& argument : variant.arguments) {
    if (argument.kind == GpuArgument::Kind::kBuffer && argument.set == 0) {
      record.binding = std::max(record.binding, argument.binding + 1);
    }
  }
  if (variant.facts_binding != GpuVariant::kNoConstant && variant.facts_set == 0) {
    record.binding = std::max(record.binding, variant.facts_binding + 1);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<uint32_t> watched, Watcher(target, std::move(words), record.binding).Run());
  if (watched.empty()) {
    return absl::OkStatus();
  }
  const uint64_t bytes = variant.local_bytes + uint64_t{target.group_size_max} * 4;
  if (bytes > target.local_bytes_max) {
    return FailedPrecondition(
        "Kernel \"" + variant.entry + "\" has loops, which the device's driver ends after " +
        std::to_string(ir::kLlvmpipeLoopRounds) +
        " iterations; detecting this takes group memory, of which the kernel leaves too little (" +
        std::to_string(bytes) + " bytes are needed in all, the device has " + std::to_string(target.local_bytes_max) +
        ").");
  }
  code.resize(watched.size() * 4);
  std::memcpy(code.data(), watched.data(), code.size());
  variant.local_bytes = static_cast<decltype(variant.local_bytes)>(bytes);
  variant.arguments.push_back(record);
  variant.can_trap = true;
  return absl::OkStatus();
}

}  // namespace hpvm::vulkan
