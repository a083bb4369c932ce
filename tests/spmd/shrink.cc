// SPDX-License-Identifier: Apache-2.0
#include "tests/spmd/shrink.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/remove_dead.h"

namespace hpvm::spmd {
namespace {

using ir::Function;
using ir::Module;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;

// A position in a function: an operation in a region's list.
struct OpLocation {
  RegionId region;
  size_t index;
};

std::vector<OpLocation> LocationsOf(const Function& f) {
  std::vector<OpLocation> places;
  std::vector<RegionId> open{f.body};
  while (!open.empty()) {
    const RegionId region = open.back();
    open.pop_back();
    for (size_t i = 0; i < f.region(region).ops.size(); ++i) {
      places.push_back({region, i});
      const Op& op = f.op(f.region(region).ops[i]);
      for (RegionId inner : {op.body, op.otherwise}) {
        if (inner.valid()) {
          open.push_back(inner);
        }
      }
    }
  }
  return places;
}

// Returns constants of the types of values [first, first + count); `defines` names those values themselves.
std::vector<OpId> Zeros(Function& f, ValueId first, uint32_t count, bool defines) {
  std::vector<OpId> made;
  for (uint32_t i = 0; i < count; ++i) {
    Op op{.code = Opcode::kConst};
    op.type = f.type_of(ValueId(first.index + i));
    op.first_result = defines ? ValueId(first.index + i) : ValueId(f.values.size());
    op.result_count = 1;
    if (!defines) {
      f.values.push_back({op.type});
    }
    made.push_back(OpId(f.ops.size()));
    f.ops.push_back(op);
  }
  return made;
}

// Ends a region at `place`: with constants for its owner's results, or with a return.
bool Truncate(Function& f, const OpLocation& place) {
  const OpId owner = f.region(place.region).owner;
  const Op old = f.op(f.region(place.region).ops[place.index]);
  const bool is_end = old.code == Opcode::kReturn ? !owner.valid()
                      : old.code == Opcode::kBr   ? owner.valid() && f.targets_of(old)[0].op == owner
                                                  : false;
  const std::vector<OpId>& list = f.region(place.region).ops;
  const bool is_short = std::all_of(list.begin() + static_cast<ptrdiff_t>(place.index), list.end(),
                                    [&](OpId id) { return f.op(id).code == Opcode::kConst || id == list.back(); });
  if (is_end || (is_short && place.index + 1 < list.size())) {
    return false;
  }
  std::vector<OpId> zeros;
  Op end{.code = owner.valid() ? Opcode::kBr : Opcode::kReturn};
  if (owner.valid()) {
    zeros = Zeros(f, f.op(owner).first_result, f.op(owner).result_count, false);
    end.first_target = static_cast<uint32_t>(f.targets.size());
    end.target_count = 1;
    f.targets.push_back({owner, false});
  } else {
    for (ir::Type type : f.type.results) {
      f.values.push_back({type});
      const std::vector<OpId> made = Zeros(f, ValueId(f.values.size() - 1), 1, true);
      zeros.insert(zeros.end(), made.begin(), made.end());
    }
  }
  end.first_operand = static_cast<uint32_t>(f.operands.size());
  end.operand_count = static_cast<uint32_t>(zeros.size());
  for (OpId zero : zeros) {
    f.operands.push_back(f.op(zero).first_result);
  }
  std::vector<OpId>& ops = f.region(place.region).ops;
  ops.resize(place.index);
  ops.insert(ops.end(), zeros.begin(), zeros.end());
  ops.push_back(OpId(f.ops.size()));
  f.ops.push_back(end);
  return true;
}

// Replaces an operation and its regions by constants.
bool Drop(Function& f, const OpLocation& place) {
  const Op old = f.op(f.region(place.region).ops[place.index]);
  if (ir::IsTerminator(old.code) || old.code == Opcode::kConst) {
    return false;
  }
  const std::vector<OpId> zeros = Zeros(f, old.first_result, old.result_count, true);
  std::vector<OpId>& ops = f.region(place.region).ops;
  ops.erase(ops.begin() + static_cast<ptrdiff_t>(place.index));
  ops.insert(ops.begin() + static_cast<ptrdiff_t>(place.index), zeros.begin(), zeros.end());
  return true;
}

// Replaces an if by one of its arms, as a block.
bool TakeArm(Function& f, const OpLocation& place, bool first) {
  Op& op = f.op(f.region(place.region).ops[place.index]);
  if (op.code != Opcode::kIf) {
    return false;
  }
  op.code = Opcode::kBlock;
  op.body = first ? op.body : op.otherwise;
  op.otherwise = {};
  op.operand_count = 0;
  return true;
}

// Replaces the only result by an operand.
bool Forward(Function& f, const OpLocation& place, uint32_t operand) {
  std::vector<OpId>& ops = f.region(place.region).ops;
  const Op op = f.op(ops[place.index]);
  if (op.result_count != 1 || operand >= op.operand_count || op.body.valid()) {
    return false;
  }
  const ValueId from = f.operands_of(op)[operand];
  if (f.type_of(from) != f.type_of(op.first_result)) {
    return false;
  }
  std::replace(f.operands.begin(), f.operands.end(), op.first_result, from);
  ops.erase(ops.begin() + static_cast<ptrdiff_t>(place.index));
  return true;
}

bool MakeOne(Function& f, const OpLocation& place) {
  Op& op = f.op(f.region(place.region).ops[place.index]);
  if (op.code != Opcode::kConst || op.imm <= 1 || !ir::IsInt(op.type)) {
    return false;
  }
  op.imm = 1;
  return true;
}

class Shrinking {
 public:
  Shrinking(Kernel kernel, const std::function<bool(const Kernel&)>& is_wanted, uint32_t tries_max)
      : best_(std::move(kernel)), is_wanted_(is_wanted), tries_left_(tries_max) {}

  Kernel Run() && {
    bool has_shrunk = true;
    while (has_shrunk && tries_left_ > 0) {
      has_shrunk = Clean();
      has_shrunk |= CutLaunch();
      has_shrunk |= Edit([](Function& f, const OpLocation& place) { return Truncate(f, place); });
      has_shrunk |= Edit([](Function& f, const OpLocation& place) { return TakeArm(f, place, true); });
      has_shrunk |= Edit([](Function& f, const OpLocation& place) { return TakeArm(f, place, false); });
      has_shrunk |= Edit([](Function& f, const OpLocation& place) { return Drop(f, place); });
      for (uint32_t operand = 0; operand < 3; ++operand) {
        has_shrunk |= Edit([&](Function& f, const OpLocation& place) { return Forward(f, place, operand); });
      }
      has_shrunk |= Edit([](Function& f, const OpLocation& place) { return MakeOne(f, place); });
    }
    return std::move(best_);
  }

 private:
  // Accepts the candidate if it is smaller or simpler and still wanted.
  bool Try(Kernel candidate) {
    if (tries_left_ == 0 || !ir::Verify(candidate.module).empty()) {
      return false;
    }
    --tries_left_;
    if (!is_wanted_(candidate)) {
      return false;
    }
    // Through the text form, which drops everything unreachable.
    if (StatusOr<Module> fresh = ir::ParseModule(ir::Print(candidate.module)); fresh.ok()) {
      candidate.module = *std::move(fresh);
    }
    best_ = std::move(candidate);
    return true;
  }

  bool Clean() {
    Kernel candidate = best_;
    if (!pass::RemoveDead(candidate.module).ok() || CountOps(candidate.module) >= CountOps(best_.module)) {
      return false;
    }
    return Try(std::move(candidate));
  }

  bool CutLaunch() {
    bool has_shrunk = false;
    for (size_t d = 0; d < 3; ++d) {
      for (uint64_t extent : {uint64_t{1}, best_.extent[d] / 4, best_.extent[d] / 2, best_.extent[d] - 1}) {
        if (extent >= 1 && extent < best_.extent[d]) {
          Kernel candidate = best_;
          candidate.extent[d] = extent;
          has_shrunk |= Try(std::move(candidate));
        }
      }
      if (best_.group[d] > 1) {
        Kernel candidate = best_;
        candidate.group[d] = 1;
        has_shrunk |= Try(std::move(candidate));
      }
    }
    return has_shrunk;
  }

  // Tries one edit at each position, from the front; after a success the list of positions is rebuilt.
  template <typename Apply>
  bool Edit(Apply apply) {
    bool has_shrunk = false;
    for (size_t function = 0; function < best_.module.functions.size(); ++function) {
      for (size_t i = 0; tries_left_ > 0; ++i) {
        const std::vector<OpLocation> places = LocationsOf(best_.module.functions[function]);
        if (i >= places.size()) {
          break;
        }
        Kernel candidate = best_;
        if (apply(candidate.module.functions[function], places[i]) && Try(std::move(candidate))) {
          has_shrunk = true;
        }
      }
    }
    return has_shrunk;
  }

  Kernel best_;
  const std::function<bool(const Kernel&)>& is_wanted_;
  uint32_t tries_left_;
};

}  // namespace

Kernel Shrink(Kernel kernel, const std::function<bool(const Kernel&)>& is_wanted, uint32_t tries_max) {
  return Shrinking(std::move(kernel), is_wanted, tries_max).Run();
}

}  // namespace hpvm::spmd
