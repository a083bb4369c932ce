// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/find_paths.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

namespace hpvm::pass {
namespace {

class PathFinder {
 public:
  PathFinder(const ir::Function& f, const BoundsTrace& trace, std::vector<LoopPath>* loops)
      : f_(f), trace_(trace), loops_(loops) {
    found_.of.assign(f.ops.size(), FunctionPaths::kNone);
    if (loops_ != nullptr) {
      loops_->assign(trace.loops.size(), {});
    }
  }

  FunctionPaths Run() {
    Walk(f_.body, Path());
    return std::move(found_);
  }

 private:
  struct Open {
    OpId owner;
    std::vector<Path> leaves, backs;
    bool escapes = false;  // True if a jump inside leaves an enclosing construct.
  };

  void Walk(RegionId region, Path path) {
    found_.paths.push_back(path);
    for (OpId id : f_.region(region).ops) {
      found_.of[id.index] = static_cast<uint32_t>(found_.paths.size() - 1);
      if (std::optional<Path> behind = Visit(id, path)) {
        path = *std::move(behind);
        found_.paths.push_back(path);
      }
    }
  }

  // Returns the path of the operations after this one, if it has regions.
  std::optional<Path> Visit(OpId id, const Path& path) {
    const Op& op = f_.op(id);
    switch (op.code) {
      case Opcode::kBlock:
        open_.push_back({id, {}, {}});
        Walk(op.body, path);
        return Close(path);
      case Opcode::kLoop:
        return Loop(id, path);
      case Opcode::kIf:
        return If(id, path);
      case Opcode::kBr:
      case Opcode::kContinue:
      case Opcode::kBrTable:
        Jump(op, path);
        return std::nullopt;
      case Opcode::kReturn:
        for (Open& open : open_) {
          open.escapes = true;
        }
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::optional<Path> If(OpId id, const Path& path) {
    const auto branch = trace_.branches.find(id.index);
    const auto with = [&](const BoundsTrace::Way& way) {
      Path inner = path;
      inner.when.insert(inner.when.end(), way.when.begin(), way.when.end());
      inner.unknown += way.is_exact ? 0 : 1;
      inner.is_exact &= way.is_exact;
      return inner;
    };
    const BoundsTrace::Branch unknown;
    const BoundsTrace::Branch& ways = branch == trace_.branches.end() ? unknown : branch->second;
    open_.push_back({id, {}, {}});
    Walk(f_.op(id).body, with(ways.taken));
    Walk(f_.op(id).otherwise, with(ways.otherwise));
    return Close(path);
  }

  std::optional<Path> Loop(OpId id, const Path& path) {
    const auto known = trace_.loops.find(id.index);
    const uint32_t loop = known == trace_.loops.end() ? Path::kUnknownLoop : known->second;
    Path inner = path;
    inner.is_exact &= loop != Path::kUnknownLoop;
    inner.loops.push_back(loop);
    open_.push_back({id, {}, {}});
    Walk(f_.op(id).body, inner);
    const std::vector<Path>& backs = open_.back().backs;
    if (loops_ != nullptr && loop < loops_->size() && backs.size() == 1 && backs[0].loops == inner.loops &&
        backs[0].when.size() >= path.when.size()) {
      (*loops_)[loop].is_exact = backs[0].is_exact;
      (*loops_)[loop].when.assign(backs[0].when.begin() + static_cast<ptrdiff_t>(path.when.size()),
                                  backs[0].when.end());
    }
    return Close(path);
  }

  void Jump(const Op& op, Path path) {
    if (op.target_count > 1) {
      path.is_exact = false;
      ++path.unknown;
    }
    for (const ir::Target& target : f_.targets_of(op)) {
      for (size_t i = open_.size(); i-- > 0;) {
        if (open_[i].owner == target.op) {
          (target.is_continue ? open_[i].backs : open_[i].leaves).push_back(path);
          break;
        }
        open_[i].escapes = true;
      }
    }
  }

  // Ends the innermost block, loop or if.
  Path Close(const Path& before) {
    const Open open = std::move(open_.back());
    open_.pop_back();
    if (!open.escapes) {
      return before;  // Every instance that enters leaves at the end, or traps.
    }
    if (open.leaves.size() == 1 && open.leaves[0].loops == before.loops) {
      return open.leaves[0];
    }
    Path behind = before;
    behind.is_exact = false;
    return behind;
  }

  const ir::Function& f_;
  const BoundsTrace& trace_;
  std::vector<LoopPath>* loops_;
  FunctionPaths found_;
  std::vector<Open> open_;
};

// OwnReads finds loads of bytes that the same instance has stored: an earlier store in the same or an enclosing
// region, at the same offset. Both offsets use the values of one iteration.
class OwnReads {
 public:
  OwnReads(const ir::Function& f, ir::BoundsProgram* program) : f_(f) {
    for (ir::BoundsAccess& access : program->accesses) {
      accesses_.emplace(access.op.index, &access);
    }
  }

  void Walk(RegionId region) {
    const size_t before = stores_.size();
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (op.code == Opcode::kBlock || op.code == Opcode::kLoop || op.code == Opcode::kIf) {
        Walk(op.body);
      }
      if (op.code == Opcode::kIf) {
        Walk(op.otherwise);
      }
      const auto found = accesses_.find(id.index);
      if (found == accesses_.end()) {
        continue;
      }
      ir::BoundsAccess& access = *found->second;
      access.reads_own =
          access.is_load && std::ranges::any_of(stores_, [&](const auto* store) { return Covers(*store, access); });
      if (access.is_store) {
        stores_.push_back(&access);
      }
    }
    stores_.resize(before);
  }

 private:
  static bool Covers(const ir::BoundsAccess& store, const ir::BoundsAccess& load) {
    return store.param == load.param && store.reach >= load.reach &&
           store.reach - store.width <= load.reach - load.width &&
           std::equal(store.offset.begin(), store.offset.end(), load.offset.begin(), load.offset.end(),
                      [](const ir::Term& x, const ir::Term& y) { return x.factor == y.factor && x.atoms == y.atoms; });
  }

  const ir::Function& f_;
  std::unordered_map<uint32_t, ir::BoundsAccess*> accesses_;
  std::vector<const ir::BoundsAccess*> stores_;  // Stores that have happened at the current operation.
};

}  // namespace

FunctionPaths FindPaths(const ir::Function& function, const BoundsTrace& trace, std::vector<LoopPath>* loops) {
  return PathFinder(function, trace, loops).Run();
}

void AddPaths(const ir::Function& function, const BoundsTrace& trace, ir::BoundsProgram* program) {
  std::vector<LoopPath> loops;
  const FunctionPaths found = FindPaths(function, trace, &loops);
  for (size_t i = 0; i < program->loops.size() && i < loops.size(); ++i) {
    program->loops[i].goes_on_when = std::move(loops[i].when);
    program->loops[i].is_exact = loops[i].is_exact;
  }
  for (ir::BoundsAccess& access : program->accesses) {
    const Path& path = found.paths[found.of[access.op.index]];
    if (access.is_store && path.is_exact) {
      access.is_certain = true;
      access.happens_when = path.when;
      access.loops = path.loops;
    }
  }
  OwnReads(function, program).Walk(function.body);
}

}  // namespace hpvm::pass
