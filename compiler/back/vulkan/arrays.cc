// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "compiler/back/vulkan/memory.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"

namespace hpvm::vulkan {

using Kind = GpuArgument::Kind;

namespace {

constexpr size_t kInitializerWordsMax = 64;
// Limit on tables: each group copies them, which does not pay for larger ones.
constexpr uint64_t kTableBytesMax = 2'048;

std::vector<uint32_t> WordsOf(const gpu::OwnMemory& memory) {
  std::vector<uint32_t> words((memory.end - memory.begin + 3) / 4, 0);
  std::memcpy(words.data(), memory.bytes.data(), std::min(memory.bytes.size(), words.size() * 4));
  return words;
}

bool IsPlainLoad(const ir::Op& op) { return op.code == ir::Opcode::kLoad || op.code == ir::Opcode::kLoad128; }

}  // namespace

// Declares a private array, with its content as initializer if it is never written or small. Otherwise EmitOwnStart
// fills it, because drivers emit one store per element of an initializer.
SpvId Arrays::OwnArray(const gpu::OwnMemory& memory) {
  const std::vector<uint32_t> words = WordsOf(memory);
  const SpvId type = w.Array(w.Int(32), static_cast<uint32_t>(words.size()));
  if (memory.is_written && (memory.is_scratch || words.size() > kInitializerWordsMax)) {
    return w.GlobalVariable(spv::StorageClassPrivate, type);
  }
  std::vector<SpvId> parts;
  for (const uint32_t word : words) {
    parts.push_back(w.U32(word));
  }
  const bool is_zero = std::ranges::all_of(words, [](uint32_t word) { return word == 0; });
  return w.GlobalVariable(spv::StorageClassPrivate, type, is_zero ? w.Null(type) : w.Composite(type, parts));
}

// Zeroes a written array and stores the non-zero part of its initial content.
void Arrays::EmitOwnStart(const gpu::OwnMemory& memory, const WordArray& array) {
  const std::vector<uint32_t> words = WordsOf(memory);
  if (!memory.is_written || memory.is_scratch || words.size() <= kInitializerWordsMax) {
    return;
  }
  v_.Use(array.variable);
  const SpvId pointer = w.Pointer(spv::StorageClassPrivate, w.Int(32));
  const SpvId count = c.K(static_cast<uint32_t>(words.size()));
  const auto at = [&](SpvId variable, SpvId index) { return w.Op(spv::OpAccessChain, pointer, {variable, index}); };
  const auto filled = static_cast<uint32_t>(words.size() - std::count(words.begin(), words.end(), 0u));
  if (filled > kInitializerWordsMax) {
    gpu::OwnMemory constant = memory;
    constant.is_written = false;
    const SpvId from = OwnArray(constant);
    v_.Use(from);
    c.For(c.K(0), count, c.K(1), [&](SpvId i) {
      const SpvId word = c.Load(c.U32(), at(from, i));
      c.Store(at(array.variable, i), word);
    });
    return;
  }
  c.For(c.K(0), count, c.K(1), [&](SpvId i) { c.Store(at(array.variable, i), c.K(0)); });
  for (uint32_t i = 0; i < words.size(); ++i) {
    if (words[i] != 0) {
      c.Store(at(array.variable, c.K(i)), c.K(words[i]));
    }
  }
}

void Arrays::Declare() {
  // Parts are multiples of 8 bytes, but the state need not be.
  const auto declare = [&](const std::vector<gpu::OwnMemory>& parts, uint64_t end, std::vector<WordArray>& arrays) {
    for (const gpu::OwnMemory& part : parts) {
      arrays.push_back(
          {OwnArray(part), spv::StorageClassPrivate, part.begin, std::min(part.end, end), part.is_written});
    }
  };
  declare(v_.plan.module_memory, v_.module.memory_bytes, module_memory_);
  declare(v_.plan.state, v_.module.state_bytes, state_);
  if (v_.plan.local_bytes > 0) {
    const bool has_vectors = UsesGroupVectors();
    const uint64_t bytes = has_vectors ? 16 : 4;
    const auto elements = static_cast<uint32_t>((v_.plan.local_bytes + bytes - 1) / bytes);
    const SpvId type = has_vectors ? w.Vector(w.Int(32), 4) : w.Int(32);
    const SpvId variable = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(type, elements));
    group_ = WordArray{variable, spv::StorageClassWorkgroup, 0, v_.plan.local_bytes, true, has_vectors};
  }
  FindTables();
}

// Returns true if some access has 16 bytes and no operation is atomic: Vulkan has no atomic operation on a component
// of a vector.
bool Arrays::UsesGroupVectors() const {
  bool is_wide = false, is_atomic = false;
  ir::ForEachOp(v_.f, [&](ir::OpId id) {
    const ir::Op& op = v_.f.op(id);
    const bool is_of_group = ir::HasSpace(op.code) && op.space == ir::Space::kGroup;
    is_wide = is_wide || (is_of_group && op.width == 16);
    is_atomic = is_atomic || ir::Info(op.code).family == ir::Family::kAtomic;
  });
  return is_wide && !is_atomic;
}

void Arrays::EmitStart() {
  for (size_t i = 0; i < module_memory_.size(); ++i) {
    EmitOwnStart(v_.plan.module_memory[i], module_memory_[i]);
  }
  for (size_t i = 0; i < state_.size(); ++i) {
    EmitOwnStart(v_.plan.state[i], state_[i]);
  }
}

void Arrays::FindTables() {
  if (v_.cuts_loops) {
    return;  // A processor gains nothing from tables in group memory.
  }
  const analysis::Definitions definitions(v_.f);
  const uint64_t used = v_.plan.local_bytes + 8;  // With the trap flags.
  const uint64_t bytes_max =
      std::min(kTableBytesMax, v_.m.target.local_bytes_max - std::min(v_.m.target.local_bytes_max, used));
  ir::ForEachOp(v_.f, [&](ir::OpId id) {
    const ir::Op& op = v_.f.op(id);
    const gpu::OwnMemory* memory = v_.plan.PartOf(id);
    if (memory == nullptr || memory->is_written || !v_.plan.is_inside[id.index] || !IsPlainLoad(op) ||
        definitions.ConstantOf(v_.f.operands_of(op)[0]) || TableOf(id) != nullptr ||
        table_bytes() + (memory->end - memory->begin) > bytes_max) {
      return;
    }
    const SpvId type = w.Array(w.Int(32), static_cast<uint32_t>(WordsOf(*memory).size()));
    const SpvId variable = w.GlobalVariable(spv::StorageClassWorkgroup, type);
    tables_.push_back({memory, OwnArray(*memory), {variable, spv::StorageClassWorkgroup, 0, memory->end, false}});
  });
}

uint64_t Arrays::table_bytes() const {
  uint64_t bytes = 0;
  for (const Table& table : tables_) {
    bytes += table.memory->end - table.memory->begin;
  }
  return bytes;
}

const WordArray* Arrays::TableOf(ir::OpId id) const {
  const gpu::OwnMemory* memory = v_.plan.PartOf(id);
  const auto table = std::ranges::find_if(tables_, [&](const Table& t) { return t.memory == memory; });
  return memory != nullptr && v_.plan.is_inside[id.index] && table != tables_.end() ? &table->words : nullptr;
}

SpvId Arrays::GroupItems() { return c.Mul(c.Mul(v_.m.GroupExtent(0), v_.m.GroupExtent(1)), v_.m.GroupExtent(2)); }

void Arrays::ZeroGroup(SpvId word, SpvId index) {
  v_.Use(group_->variable);
  if (group_->has_vectors) {
    const SpvId four = w.Vector(w.Int(32), 4), pointer = w.Pointer(spv::StorageClassWorkgroup, four);
    c.For(index, c.K(static_cast<uint32_t>((group_->end + 15) / 16)), GroupItems(), [&](SpvId i) {
      c.Store(w.Op(spv::OpAccessChain, pointer, {group_->variable, i}), w.Null(four));
    });
    return;
  }
  c.For(index, c.K(static_cast<uint32_t>((group_->end + 3) / 4)), GroupItems(), [&](SpvId i) {
    c.Store(w.Op(spv::OpAccessChain, word, {group_->variable, i}), c.K(0));
  });
}

void Arrays::FillTables(SpvId word, SpvId index) {
  const SpvId constant = w.Pointer(spv::StorageClassPrivate, w.Int(32));
  for (const Table& table : tables_) {
    v_.Use(table.content);
    v_.Use(table.words.variable);
    const auto words = static_cast<uint32_t>(WordsOf(*table.memory).size());
    c.For(index, c.K(words), GroupItems(), [&](SpvId i) {
      const SpvId value = c.Load(c.U32(), w.Op(spv::OpAccessChain, constant, {table.content, i}));
      c.Store(w.Op(spv::OpAccessChain, word, {table.words.variable, i}), value);
    });
  }
}

SpvId Arrays::GroupBase() {
  return functions_.Hoisted("group base", [&] {
    if (!v_.module.is_memory64) {
      return v_.Argument32(Kind::kGroupBase, 0);
    }
    return c.Bits(v_.m.TypeOf(Type::kI64), v_.Argument(Kind::kGroupBase, 0, 8));
  });
}

const WordArray* Arrays::SegmentArray(uint64_t index) {
  auto [entry, is_new] = segments_.try_emplace(index);
  if (is_new) {
    gpu::OwnMemory memory;
    memory.bytes = v_.module.passive_segments[index];
    memory.end = std::max<uint64_t>(memory.bytes.size(), 4);
    entry->second = {OwnArray(memory), spv::StorageClassPrivate, 0, memory.end, false};
  }
  v_.Use(entry->second.variable);
  return &entry->second;
}

}  // namespace hpvm::vulkan
