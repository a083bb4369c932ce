// SPDX-License-Identifier: Apache-2.0
// Method: one walk of each region collects loads by buffer, width and address without its constant. At an operation
// with an effect, neighbours that make up 16 bytes are joined where the lowest is aligned, from the lowest offset
// upwards.
// Invariants: no operation between joined loads writes, waits, traps or branches. A load is joined at most once.
// The wide load stands where its address is known and before every use: at the first of its loads, or else at the
// lowest if nothing in between needs one.
// The time is linear in the operations, with a logarithm for ordered maps, and the search between the loads of a
// group.
#include "compiler/pass/tile/wide_loads.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "compiler/analysis/definitions.h"
#include "compiler/analysis/linear_form.h"
#include "compiler/analysis/trailing_zeros.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/pass/tile/form_copier.h"

namespace hpvm::pass {
namespace {

constexpr uint32_t kWideBytes = 16;
constexpr uint8_t kWideZeros = 4;

// Keyed by OpId of the load at whose place they are executed: the loads that become one, the lowest first.
using Plan = std::map<uint32_t, std::vector<OpId>>;

class WideLoadPlanner {
 public:
  WideLoadPlanner(const ir::Module& module, const std::vector<bool>& is_free)
      : f_(module.function(module.entry)), is_free_(is_free), numbers_(module, analysis::kGpuIdMax) {}

  Plan Run() {
    for (const ir::Region& region : f_.regions) {
      LookThrough(region);
    }
    return std::move(plan_);
  }

 private:
  // The buffer, the width, Op::is_inside, and the terms of the address without its constant.
  using Key = std::tuple<uint32_t, uint32_t, bool, std::vector<std::pair<uint32_t, uint64_t>>>;

  void LookThrough(const ir::Region& region) {
    position_.clear();
    for (uint32_t i = 0; i < region.ops.size(); ++i) {
      const OpId id = region.ops[i];
      const Op& op = f_.op(id);
      position_[id.index] = i;
      const bool is_load = ir::HasSpace(op.code) && op.space == ir::Space::kParam && is_free_[id.index] &&
                           (op.code == Opcode::kLoad || op.code == Opcode::kLoad128);
      if (is_load) {
        Note(id);
      } else if (ir::OwnsRegions(op.code) || (ir::Info(op.code).effects & ~ir::kReads) != 0) {
        Join(region);
      }
    }
    Join(region);
  }
  void Note(OpId id) {
    const Op& op = f_.op(id);
    if (op.code != Opcode::kLoad || op.width < 4 || op.width != ir::Bytes(op.type)) {
      return;
    }
    const ValueId address = f_.operands_of(op)[0];
    analysis::LinearForm form = linear_.Of(address);
    // The sum cannot wrap around here: a free access is in the buffer, which begins far above address 16.
    const int64_t place = ir::SignedBits(f_.type_of(address), form.constant + op.imm);
    loads_[{op.space_index, op.width, op.is_inside, std::move(form.terms)}].emplace(place, id);
  }
  void Join(const ir::Region& region) {
    for (const auto& [key, loads] : loads_) {
      const auto is_aligned = [&](OpId id) { return numbers_.IsAligned(f_.op(id), kWideZeros); };
      const auto all = [](OpId, OpId) { return true; };
      for (std::vector<OpId>& wide : FindWideLoads(loads, std::get<1>(key), is_aligned, all)) {
        if (const std::optional<OpId> where = PlaceOf(wide, region)) {
          plan_.emplace(where->index, std::move(wide));
        }
      }
    }
    loads_.clear();
  }
  // Returns the load at whose place all of them can be executed: the first, or else the lowest, whose address is known
  // there, if no operation needs one of them before.
  std::optional<OpId> PlaceOf(const std::vector<OpId>& wide, const ir::Region& region) const {
    const auto position = [&](OpId id) { return position_.at(id.index); };
    const OpId first = *std::ranges::min_element(wide, {}, position);
    const OpId by = definitions_.Of(f_.operands_of(f_.op(wide[0]))[0]);
    const auto made = by.valid() ? position_.find(by.index) : position_.end();
    if (made == position_.end() || made->second < position(first)) {
      return first;
    }
    for (uint32_t i = position(first); i < position(wide[0]); ++i) {
      for (const ValueId operand : f_.operands_of(f_.op(region.ops[i]))) {
        if (std::ranges::find(wide, definitions_.Of(operand)) != wide.end()) {
          return std::nullopt;
        }
      }
    }
    return wide[0];
  }

  const ir::Function& f_;
  const std::vector<bool>& is_free_;
  analysis::EntryNumbers numbers_;
  const analysis::Definitions definitions_{f_};
  const analysis::LinearForms linear_{f_};
  std::map<uint32_t, uint32_t> position_;  // Keyed by OpId, in the current region.
  std::map<Key, std::map<int64_t, OpId>> loads_;
  Plan plan_;
};

class Writer final : public FormCopier {
 public:
  Writer(const ir::Module& module, const Plan& plan, const CoarseModule* coarse)
      : FormCopier(module, coarse), plan_(plan), is_joined_(f_.ops.size()) {
    for (const auto& [place, loads] : plan) {
      for (OpId id : loads) {
        is_joined_[id.index] = true;
      }
    }
  }

  CoarseModule Run() && {
    CoarseModule wide = Copy();
    wide.needs_alignment = true;
    return wide;
  }

 private:
  void CopyOp(OpId id) override {
    if (const auto wide = plan_.find(id.index); wide != plan_.end()) {
      return Join(wide->second);
    }
    if (!is_joined_[id.index]) {
      FormCopier::CopyOp(id);
    }
  }
  void Join(const std::vector<OpId>& loads) {
    const Op& lowest = f_.op(loads[0]);
    const WideLoad made = AppendWideLoad(b_, f_, loads, Map(lowest)[0], lowest.is_inside);
    NoteOriginal(made.op, loads[0]);
    for (size_t i = 0; i < loads.size(); ++i) {
      Bind(f_.op(loads[i]).first_result, std::span(made.values).subspan(i, 1));
    }
  }

  const Plan& plan_;
  std::vector<bool> is_joined_;  // Indexed by OpId.
};

}  // namespace

std::vector<std::vector<OpId>> FindWideLoads(const std::map<int64_t, OpId>& loads, uint32_t width,
                                             const std::function<bool(OpId)>& is_aligned,
                                             const std::function<bool(OpId, OpId)>& may_join) {
  std::vector<std::vector<OpId>> found;
  for (auto load = loads.begin(); load != loads.end();) {
    const auto [place, id] = *load++;
    std::vector<OpId> wide = {id};
    while (wide.size() * width < kWideBytes) {
      const auto next = loads.find(place + static_cast<int64_t>(wide.size() * width));
      if (next == loads.end() || !may_join(id, next->second)) {
        break;
      }
      wide.push_back(next->second);
    }
    if (wide.size() * width == kWideBytes && is_aligned(id)) {
      found.push_back(std::move(wide));
      load = loads.lower_bound(place + kWideBytes);
    }
  }
  return found;
}

WideLoad AppendWideLoad(ir::Builder& builder, const ir::Function& from, std::span<const OpId> loads, ValueId address,
                        bool is_inside) {
  const Op& lowest = from.op(loads[0]);
  Op four = lowest;
  four.operand_count = four.result_count = 0;
  four.code = Opcode::kLoad128;
  four.type = Type::kI32;
  four.width = kWideBytes;
  four.is_inside = is_inside;
  constexpr std::array kWords = {Type::kI32, Type::kI32, Type::kI32, Type::kI32};
  WideLoad made;
  made.op = builder.Append(four, std::array{address}, kWords);
  const std::vector<ValueId> words = builder.Results(made.op);
  const auto make = [&](Opcode code, Type type, std::initializer_list<ValueId> operands, Type result) {
    return builder.Append1({.code = code, .type = type, .source = lowest.source}, operands, result);
  };
  for (size_t k = 0; k < loads.size(); ++k) {
    const size_t i = k * lowest.width / 4;
    const Type wanted = from.op(loads[k]).type;
    ValueId bits = words[i];
    Type type = Type::kI32;
    if (lowest.width == 8) {
      type = Type::kI64;
      const ValueId low = make(Opcode::kExtendU, Type::kI32, {bits}, type);
      const ValueId high = make(Opcode::kExtendU, Type::kI32, {words[i + 1]}, type);
      bits = make(Opcode::kOr, type, {make(Opcode::kShl, type, {high, builder.Const(type, 32)}, type), low}, type);
    }
    made.values.push_back(ir::IsInt(wanted) ? bits : make(Opcode::kReinterpret, type, {bits}, wanted));
  }
  return made;
}

std::optional<CoarseModule> WidenLoads(const ir::Module& module, const std::vector<bool>& is_free,
                                       const CoarseModule* coarse) {
  // The form would have to recompute a computed place of traps.
  if (coarse != nullptr && (coarse->computed[0].valid() || coarse->computed[1].valid())) {
    return std::nullopt;
  }
  const Plan plan = WideLoadPlanner(module, is_free).Run();
  return plan.empty() ? std::nullopt : std::optional(Writer(module, plan, coarse).Run());
}

}  // namespace hpvm::pass
