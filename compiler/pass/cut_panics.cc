// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/cut_panics.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/call_order.h"
#include "compiler/pass/library_name.h"

namespace hpvm::pass {
namespace {

using ir::Function;

// PathWalk finds whether control can reach a return, and whether it can enter a loop without an exit. It walks in the
// order of the text, as CutUnreachable does.
class PathWalk {
 public:
  PathWalk(const Function& function, const std::vector<bool>& may_return)
      : f_(function), may_return_(may_return), is_left_(function.ops.size()) {
    Region(f_.body);
  }

  bool returns() const { return returns_; }
  bool has_endless_loop() const { return has_endless_loop_; }

 private:
  struct Open {
    OpId owner;
    bool has_way_out = false;  // True if an operation in the loop may leave it.
  };

  void Region(RegionId id) {
    for (const OpId at : f_.region(id).ops) {
      const Op& op = f_.op(at);
      returns_ = returns_ || op.code == Opcode::kReturn;
      if (op.code == Opcode::kTrap || op.code == Opcode::kReturn ||
          (op.code == Opcode::kCall && !may_return_[op.imm])) {
        for (Open& open : open_) {
          open.has_way_out = true;
        }
        return;
      }
      for (const ir::Target& target : f_.targets_of(op)) {
        Jump(target);
      }
      if (ir::OwnsRegions(op.code) && !Nested(at, op)) {
        return;
      }
    }
  }

  void Jump(const ir::Target& target) {
    is_left_[target.op.index] = is_left_[target.op.index] || !target.is_continue;
    for (size_t i = open_.size(); i-- > 0;) {
      const bool is_target = open_[i].owner.index == target.op.index;
      open_[i].has_way_out |= !is_target || !target.is_continue;
      if (is_target) {
        return;
      }
    }
  }

  // Returns true if control may continue after the construct.
  bool Nested(OpId at, const Op& op) {
    open_.push_back({at});
    Region(op.body);
    if (op.code == Opcode::kIf) {
      Region(op.otherwise);
    }
    has_endless_loop_ = has_endless_loop_ || (op.code == Opcode::kLoop && !open_.back().has_way_out);
    open_.pop_back();
    return is_left_[at.index];
  }

  const Function& f_;
  const std::vector<bool>& may_return_;
  std::vector<bool> is_left_;  // Indexed by OpId of a block, loop or if.
  std::vector<Open> open_;
  bool returns_ = false, has_endless_loop_ = false;
};

// The effects of a function and of all functions that it calls.
struct Deeds {
  uint32_t ops = 0;
  bool is_seen = false;   // Observable by other instances, or by people.
  bool may_hang = false;  // In a loop without an exit.
  bool traps = false;     // It has a trap of `unreachable`.

  void Add(const Deeds& other) {
    ops = std::min(ops + other.ops, 1u << 30);
    is_seen |= other.is_seen;
    may_hang |= other.may_hang;
    traps |= other.traps;
  }
  bool HasMoreThan(const Deeds& other) const {
    return is_seen > other.is_seen || may_hang > other.may_hang || traps > other.traps;
  }
};

bool IsSeen(const Op& op) {
  const bool is_trap_of_note = op.code == Opcode::kTrap && (op.imm == static_cast<uint64_t>(TrapCode::kAssert) ||
                                                            op.imm == static_cast<uint64_t>(TrapCode::kHost));
  return is_trap_of_note || op.code == Opcode::kPrint || op.code == Opcode::kBarrier ||
         op.code == Opcode::kLocalAlloc || ir::Info(op.code).family == ir::Family::kAtomic;
}

class Survey {
 public:
  explicit Survey(const ir::Module& module)
      : m_(module),
        order_(module),
        may_return_(module.functions.size()),
        called_types_(module.functions.size()),
        deeds_(module.functions.size()) {
    FindReturns();
    FindDeeds();
  }

  // A library function that panics is cut regardless of its loops; an endless loop in an author's function may be
  // intentional.
  bool IsCut(const Op& op) const {
    if (op.code != Opcode::kCall || may_return_[op.imm]) {
      return false;
    }
    const Deeds& deeds = deeds_[op.imm];
    return deeds.traps && !deeds.is_seen &&
           (IsLibraryName(m_.functions[op.imm].name) || (deeds.ops >= kPanicOpsMin && !deeds.may_hang));
  }

 private:
  // Computes the smallest set of functions that may return: a function on a cycle of calls is in the set only by a
  // path that avoids the cycle.
  void FindReturns() {
    bool has_changed = true;
    for (uint32_t pass = 0; has_changed; ++pass) {
      has_changed = false;
      for (const uint32_t i : order_.order()) {
        const bool is_given_up = pass == kPassesMax && order_.IsRecursive(i);
        if (!may_return_[i] && (is_given_up || PathWalk(m_.functions[i], may_return_).returns())) {
          may_return_[i] = true;
          has_changed = has_changed || order_.IsRecursive(i);
        }
      }
    }
  }

  void FindDeeds() {
    std::vector<Deeds> own;
    for (uint32_t i = 0; i < m_.functions.size(); ++i) {
      own.push_back(OwnDeeds(i));
    }
    bool has_changed = true;
    for (uint32_t pass = 0; has_changed; ++pass) {
      has_changed = false;
      std::vector<Deeds> by_type(m_.reference_types.size());
      for (const ir::Reference& reference : m_.references) {
        if (reference.function.valid()) {
          by_type[reference.type].Add(deeds_[reference.function.index]);
        }
      }
      for (const uint32_t i : order_.order()) {
        Deeds sum = own[i];
        for (const uint32_t type : called_types_[i]) {
          sum.Add(by_type[type]);
        }
        for (const uint32_t callee : order_.CalleesOf(i)) {
          sum.Add(deeds_[callee]);
        }
        sum.is_seen |= pass >= kPassesMax;
        has_changed = has_changed || sum.HasMoreThan(deeds_[i]);
        deeds_[i] = sum;
      }
    }
  }

  Deeds OwnDeeds(uint32_t index) {
    const Function& function = m_.functions[index];
    Deeds deeds;
    ir::ForEachOp(function, [&](OpId id) {
      const Op& op = function.op(id);
      ++deeds.ops;
      deeds.is_seen |= IsSeen(op);
      deeds.traps |= op.code == Opcode::kTrap && op.imm == static_cast<uint64_t>(TrapCode::kUnreachable);
      if (op.code == Opcode::kCallRef) {
        called_types_[index].insert(static_cast<uint32_t>(op.imm));
        deeds.is_seen |= m_.is_linked;  // A reference may name another module's functions.
      }
    });
    deeds.may_hang = PathWalk(function, may_return_).has_endless_loop();
    return deeds;
  }

  // Maximum number of passes over mutually recursive functions; results still unknown afterwards become the worst
  // case.
  static constexpr uint32_t kPassesMax = 16;

  const ir::Module& m_;
  const CallOrder order_;
  std::vector<bool> may_return_;                  // Indexed by FunctionId, as the following vectors.
  std::vector<std::set<uint32_t>> called_types_;  // Types of calls through references.
  std::vector<Deeds> deeds_;
};

// Module memory at the start of an instance.
class InitialMemory {
 public:
  explicit InitialMemory(const ir::Module& module) : m_(module) {}

  // Returns nothing if some byte is outside of all segments.
  std::optional<std::string> Read(uint64_t address, uint64_t bytes) const {
    auto next = std::ranges::upper_bound(m_.data, address, {}, &ir::DataSegment::address);
    if (next == m_.data.begin()) {
      return std::nullopt;
    }
    const ir::DataSegment& segment = *(next - 1);
    const uint64_t offset = address - segment.address;
    if (offset > segment.bytes.size() || bytes > segment.bytes.size() - offset) {
      return std::nullopt;
    }
    return std::string(segment.bytes.begin() + static_cast<ptrdiff_t>(offset),
                       segment.bytes.begin() + static_cast<ptrdiff_t>(offset + bytes));
  }
  // Returns a little-endian number; 0 if the bytes are not initialised.
  uint64_t Number(uint64_t address, uint32_t bytes) const {
    uint64_t value = 0;
    const std::string text = Read(address, bytes).value_or("");
    for (size_t i = 0; i < text.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * i);
    }
    return value;
  }

 private:
  const ir::Module& m_;
};

// Decodes a core::panic::Location: the file's name (address, bytes), line, column. Accepts an author's file only,
// because a place in the library says where the library detected the error, not what was wrong.
std::optional<ir::SourceLocation> LocationAt(const ir::Module& module, uint64_t address) {
  constexpr uint64_t kLineMax = 10'000'000, kColumnMax = 1'000'000;
  const InitialMemory memory(module);
  const uint32_t word = module.is_memory64 ? 8 : 4;
  const uint64_t bytes = memory.Number(address + word, word);
  const uint64_t line = memory.Number(address + 2 * word, 4), column = memory.Number(address + 2 * word + 4, 4);
  if (bytes == 0 || bytes > kPanicFileBytesMax || line == 0 || line > kLineMax || column == 0 || column > kColumnMax) {
    return std::nullopt;
  }
  const std::optional<std::string> file = memory.Read(memory.Number(address, word), bytes);
  const auto is_plain = [](char c) { return static_cast<uint8_t>(c) >= ' ' && c != 0x7f; };
  if (!file.has_value() || !file->ends_with(".rs") || !std::ranges::all_of(*file, is_plain) ||
      file->starts_with("/rustc/") || file->starts_with("library/core/") || file->starts_with("library/std/") ||
      file->starts_with("library/alloc/") || file->find("/lib/rustlib/src/") != std::string::npos) {
    return std::nullopt;
  }
  return ir::SourceLocation{
      .source = 0, .file = *file, .line = static_cast<uint32_t>(line), .column = static_cast<uint32_t>(column)};
}

class Cutter {
 public:
  // Appends to `places`.
  Cutter(ir::Module& module, const Survey& survey, Function& function, std::vector<ir::SourceLocation>& places)
      : m_(module), survey_(survey), f_(function), places_(places), constants_(function.values.size()) {
    ir::ForEachOp(f_, [&](OpId id) {
      if (f_.op(id).code == Opcode::kConst) {
        constants_[f_.op(id).first_result.index] = id;
      }
    });
    for (ir::Region& region : f_.regions) {
      const auto call = std::ranges::find_if(region.ops, [&](OpId id) { return survey_.IsCut(f_.op(id)); });
      if (call != region.ops.end()) {
        Cut(region, static_cast<size_t>(call - region.ops.begin()));
      }
    }
  }

 private:
  void Cut(ir::Region& region, size_t at) {
    const Op call = f_.op(region.ops[at]);
    NotePlace(call);
    Op trap{.code = Opcode::kTrap,
            .imm = static_cast<uint64_t>(TrapCode::kUnreachable),
            .source = call.source,
            .origin = call.origin};
    f_.ops.push_back(trap);
    region.ops.resize(at);
    region.ops.push_back(OpId(static_cast<uint32_t>(f_.ops.size() - 1)));
  }

  // Rust passes the place as the last parameter; the result pointers of calls through memory come first.
  void NotePlace(const Op& call) {
    for (uint32_t i = call.operand_count; i-- > 0 && call.source != 0 && places_.size() < kPanicPlacesMax;) {
      const OpId constant = constants_[f_.operands_of(call)[i].index];
      std::optional<ir::SourceLocation> place =
          constant.valid() ? LocationAt(m_, f_.op(constant).imm & AddressMask()) : std::nullopt;
      if (place.has_value()) {
        place->source = call.source;
        places_.push_back(*std::move(place));
        return;
      }
    }
  }

  uint64_t AddressMask() const { return m_.is_memory64 ? ~uint64_t{0} : 0xffffffffull; }

  ir::Module& m_;
  const Survey& survey_;
  Function& f_;
  std::vector<ir::SourceLocation>& places_;
  std::vector<OpId> constants_;  // Indexed by value; invalid for values that are not constants.
};

}  // namespace

std::vector<ir::SourceLocation> CutPanics(ir::Module& module) {
  std::vector<ir::SourceLocation> places;
  const Survey survey(module);
  for (Function& function : module.functions) {
    Cutter(module, survey, function, places);
  }
  std::ranges::sort(places,
                    [](const ir::SourceLocation& a, const ir::SourceLocation& b) { return a.source < b.source; });
  return places;
}

}  // namespace hpvm::pass
