// SPDX-License-Identifier: Apache-2.0
// ChooseTiles writes the coarsened kernel for each candidate shape, estimates its cost per instance and its registers,
// and ranks the candidates by cost, weighted by registers and tile size.
#include "compiler/pass/tile/coarsen.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/tile/coarsener.h"

namespace hpvm::pass {
namespace {

// A larger body would not fit an instruction cache, and takes drivers long to compile.
constexpr size_t kOpsMax = 20'000;
// Limit of 32-bit registers for values that are alive at a time: drivers have 255, and need some for their own values.
constexpr uint32_t kRegistersMax = 200;
constexpr size_t kTilesMax = 3;
// Requirements of a staged tile (stage_loads.cc).
constexpr uint64_t kStagedBytesMin = 32 * 1024 + 16;
constexpr uint32_t kStagedItems = 256;
// A tile must reduce the cost at least to this fraction.
constexpr double kGainMin = 0.9;

// Registers counts the 32-bit registers of values that are alive at a time. Constants take none, and a value used in a
// loop lives until the loop ends.
class Registers {
 public:
  explicit Registers(const ir::Function& function)
      : f_(function), defined_(f_.values.size()), last_(f_.values.size()) {}

  uint32_t Most() {
    Walk(f_.body, {});
    std::vector<int64_t> change(at_ + 2);
    for (size_t i = 0; i < last_.size(); ++i) {
      if (last_[i] > defined_[i] && defined_[i] != 0) {
        const int64_t words = ir::Bytes(f_.values[i].type) / 4;
        change[defined_[i]] += words;
        change[last_[i]] -= words;
      }
    }
    int64_t now = 0, most = 0;
    for (const int64_t step : change) {
      now += step;
      most = std::max(most, now);
    }
    return static_cast<uint32_t>(most);
  }

 private:
  struct Loop {
    size_t begin = 0;
    std::vector<ValueId> uses;
  };

  void Use(ValueId id) {
    last_[id.index] = std::max(last_[id.index], at_);
    for (Loop* loop : loops_) {
      if (defined_[id.index] < loop->begin) {
        loop->uses.push_back(id);
      }
    }
  }
  void Define(ValueId first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      defined_[first.index + i] = at_;
    }
  }
  void Walk(ir::RegionId region, OpId owner) {
    Loop loop{at_, {}};
    const bool is_loop = owner.valid() && f_.op(owner).code == Opcode::kLoop;
    if (is_loop) {
      loops_.push_back(&loop);
    }
    Define(f_.region(region).first_param, f_.region(region).param_count);
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      ++at_;
      for (ValueId operand : f_.operands_of(op)) {
        Use(operand);
      }
      if (op.code == Opcode::kBlock || op.code == Opcode::kLoop || op.code == Opcode::kIf) {
        Walk(op.body, id);
        if (op.code == Opcode::kIf) {
          Walk(op.otherwise, id);
        }
      }
      if (op.code != Opcode::kConst) {
        Define(op.first_result, op.result_count);
      }
    }
    if (is_loop) {
      loops_.pop_back();
      for (ValueId id : loop.uses) {
        last_[id.index] = std::max(last_[id.index], at_);
      }
    }
  }

  const ir::Function& f_;
  size_t at_ = 1;
  std::vector<size_t> defined_, last_;  // Indexed by ValueId; 0: never.
  std::vector<Loop*> loops_;
};

size_t CountOps(const ir::Function& function) {
  size_t count = 0;
  ir::ForEachOp(function, [&](OpId) { ++count; });
  return count;
}

struct Candidate {
  GpuTile tile;
  double cost = 0;  // Per instance.
  uint32_t registers = 0;
  bool is_free = false;  // Launches need no particular alignment.

  // Returns the cost for comparisons: more registers mean fewer work items that hide memory latency, and panels in
  // group memory are faster than data that a cache may hold.
  double Weighted() const {
    return cost * (1 + registers / 256.0) * (1 + 0.03 * std::log2(tile.size[0] * tile.size[1])) *
           (tile.is_staged ? 0.85 : 1);
  }
};

// Rejects tiles that would exceed kOpsMax by far without writing them.
Status CheckSize(const ir::Module& module, const GpuTile& tile) {
  const size_t ops = CountOps(module.function(module.entry));
  if (ops * tile.size[0] * tile.size[1] > 8 * kOpsMax) {
    return Unimplemented("Kernel \"" + module.function(module.entry).name + "\" has " + std::to_string(ops) +
                         " operations, too many for a tile of " + std::to_string(tile.size[0]) + " x " +
                         std::to_string(tile.size[1]) + " instances.");
  }
  return absl::OkStatus();
}

StatusOr<Candidate> Try(const ir::Module& module, const GpuTile& tile) {
  HPVMD_ASSIGN_OR_RETURN(const TilePlan plan, PlanTile(module, tile));
  HPVMD_RETURN_IF_ERROR(CheckSize(module, tile));
  Coarsener coarsener(module, plan);
  const CoarseModule coarse = coarsener.Run();
  const ir::Function& entry = coarse.module.function(coarse.module.entry);
  if (const size_t ops = CountOps(entry); ops > kOpsMax) {
    return Unimplemented("A tile would take " + std::to_string(ops) + " operations; the limit is " +
                         std::to_string(kOpsMax) + ".");
  }
  return Candidate{tile, coarsener.cost() / (tile.size[0] * tile.size[1]), Registers(entry).Most(),
                   !coarse.needs_alignment && coarse.factors.empty()};
}

// Returns true if the kernel queries the id along y.
bool HasRows(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  std::vector<bool> is_one(f.values.size());
  bool has_rows = false;
  ir::ForEachOp(f, [&](OpId id) {
    const Op& op = f.op(id);
    if (op.code == Opcode::kConst) {
      is_one[op.first_result.index] = op.imm == 1;
    }
    has_rows = has_rows || (op.code == Opcode::kInstanceId && is_one[f.operands_of(op)[0].index]);
  });
  return has_rows;
}

// Returns the best candidates: at most one staged form, and at least one that runs every launch, because others are
// useless if rows are not aligned.
std::vector<GpuTile> Best(std::span<const Candidate> good) {
  std::vector<GpuTile> best;
  bool has_staged = false, has_free = std::ranges::none_of(good, &Candidate::is_free);
  for (const Candidate& candidate : good) {
    const bool is_kept_free = best.size() + 1 == kTilesMax && !has_free && !candidate.is_free;
    if (best.size() < kTilesMax && !is_kept_free && !(has_staged && candidate.tile.is_staged)) {
      best.push_back(candidate.tile);
      has_staged = has_staged || candidate.tile.is_staged;
      has_free = has_free || candidate.is_free;
    }
  }
  return best;
}

std::string Fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

}  // namespace

StatusOr<CoarseModule> Coarsen(const ir::Module& module, const GpuTile& tile) {
  HPVMD_ASSIGN_OR_RETURN(const TilePlan plan, PlanTile(module, tile));
  HPVMD_RETURN_IF_ERROR(CheckSize(module, tile));
  CoarseModule coarse = Coarsener(module, plan).Run();
  if (const size_t ops = CountOps(coarse.module.function(module.entry)); ops > kOpsMax) {
    return Unimplemented("Kernel \"" + module.function(module.entry).name + "\" would have " + std::to_string(ops) +
                         " operations in tiles; the limit is " + std::to_string(kOpsMax) + ".");
  }
  const Diagnostics faults = ir::Verify(coarse.module);
  if (HasErrors(faults)) {
    return Internal("Coarsening broke the kernel IR: " + ToString(faults));
  }
  return coarse;
}

std::vector<GpuTile> ChooseTiles(const ir::Module& module, const GpuTarget& target, KernelReport* report) {
  const auto say = [&](const std::string& text) {
    if (report != nullptr) {
      report->Add(KernelRemark::Kind::kTile, 0, text);
    }
  };
  if (target.is_processor) {
    say("The device is a CPU: each work item runs one instance.");
    return {};
  }
  const StatusOr<Candidate> single = Try(module, {});
  if (!single.ok()) {
    say(std::string(single.status().message()));
    return {};
  }
  say("One instance per work item costs " + Fixed(single->cost) + " units.");
  std::vector<GpuTile> tiles = {{{2, 1, 1}}, {{4, 1, 1}}, {{8, 1, 1}}};
  if (HasRows(module)) {
    tiles = {{{2, 1, 1}}, {{4, 1, 1}}, {{1, 4, 1}}, {{1, 8, 1}}, {{2, 2, 1}},
             {{4, 4, 1}}, {{8, 4, 1}}, {{4, 8, 1}}, {{8, 8, 1}}};
  }
  if (HasRows(module) && target.local_bytes_max >= kStagedBytesMin && target.group_size_max >= kStagedItems) {
    for (const GpuTile& tile : {GpuTile{{8, 8, 1}, true}, GpuTile{{8, 4, 1}, true}}) {
      tiles.push_back(tile);
    }
  }
  std::vector<Candidate> good;
  for (const GpuTile& tile : tiles) {
    const std::string name = std::string(tile.is_staged ? "staged " : "") + std::to_string(tile.size[0]) + " x " +
                             std::to_string(tile.size[1]);
    const StatusOr<Candidate> candidate = Try(module, tile);
    if (!candidate.ok()) {
      say(std::string(candidate.status().message()));
      continue;
    }
    const bool fits = candidate->registers <= kRegistersMax, gains = candidate->cost < kGainMin * single->cost;
    say("Tiles of " + name + " instances cost " + Fixed(candidate->cost) + " units per instance and take " +
        std::to_string(candidate->registers) + " registers" +
        (!fits    ? ", more than the device has."
         : !gains ? ", which gains too little."
                  : "."));
    if (fits && gains) {
      good.push_back(*candidate);
    }
  }
  std::ranges::sort(good, {}, &Candidate::Weighted);
  return Best(good);
}

}  // namespace hpvm::pass
