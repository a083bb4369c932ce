// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/access.h"

#include <algorithm>

#include "compiler/ir/bounds_prover.h"
#include "compiler/ir/overwrite.h"

namespace hpvm::ir {
namespace {

using Scope = BoundsProver::Scope;

void Include(const AccessRange& range, AccessRange* hull) {
  if (range.is_empty()) {
    return;
  }
  *hull = hull->is_empty() ? range : AccessRange{std::min(hull->begin, range.begin), std::max(hull->end, range.end)};
}

class Finder {
 public:
  Finder(const BoundsProgram& program, const BoundsFacts& facts, const InstanceBox& box)
      : program_(program), facts_(facts), prover_(program, facts, box) {}

  bool Run(std::vector<ParamAccess>* accesses) {
    prover_.FindTrips();
    touched_.resize(facts_.params.size());
    for (const std::vector<BoundsAccess>* list : {&program_.accesses, &program_.by_words, &program_.others}) {
      for (const BoundsAccess& access : *list) {
        AccessRange touched;
        if (!Touches(access, &touched)) {
          return false;
        }
        if (access.param == BoundsAccess::kGroupMemory) {
          continue;
        }
        ParamAccess& param = (*accesses)[access.param];
        Touched& all = touched_[access.param];
        if (access.is_load) {
          Include(touched, &param.read);
          Include(access.reads_own ? AccessRange() : touched, &all.read_of_others);
        }
        if (access.is_store) {
          Include(touched, &param.written);
          all.stores.push_back(&access);
        }
      }
    }
    for (size_t i = 0; i < accesses->size(); ++i) {
      ParamAccess& param = (*accesses)[i];
      const AccessRange& read = touched_[i].read_of_others;
      const bool reads_it = !read.is_empty() && read.begin < param.written.end && param.written.begin < read.end;
      param.overwrites =
          !param.written.is_empty() && !reads_it && StoresCover(program_, prover_, touched_[i].stores, param.written);
    }
    return true;
  }

 private:
  // Computes the bytes of its buffer that an access may touch; returns false when it may touch other buffers.
  bool Touches(const BoundsAccess& access, AccessRange* touched) const {
    Scope scope(prover_, access.context);
    const Interval offset = scope.Of(access.offset);
    if (scope.is_impossible() || offset.is_empty()) {
      return true;
    }
    const bool is_group = access.param == BoundsAccess::kGroupMemory;
    const Wide bytes = is_group ? access.group_bytes : facts_.params[access.param].value;
    if (!offset.Within(0, bytes - access.reach) && !program_.is_separate) {
      return false;
    }
    // An offset that wraps may reach the buffer's other end; the immediate is added after wrapping.
    const Wide modulus = Modulus(program_.is_wide ? 64 : 32), immediate = Wide{access.reach} - access.width;
    const bool wraps = !offset.Within(std::max(bytes - modulus, -modulus / 2), modulus - immediate - 1);
    const Wide begin = wraps ? 0 : std::clamp<Wide>(*offset.lo() + immediate, 0, bytes);
    const Wide end = wraps ? bytes : std::clamp<Wide>(*offset.hi() + access.reach, 0, bytes);
    *touched = {static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
    return true;
  }

  // The accesses to one parameter.
  struct Touched {
    std::vector<const BoundsAccess*> stores;
    AccessRange read_of_others;  // Bytes that the reading instance has not stored itself before.
  };

  const BoundsProgram& program_;
  const BoundsFacts& facts_;
  BoundsProver prover_;
  std::vector<Touched> touched_;
};

// An empty box and a box outside the launch touch nothing.
bool HasInstances(const BoundsFacts& facts, const InstanceBox& box) {
  for (int i = 0; i < 3; ++i) {
    if (box.count[i] == 0 || box.first[i] >= facts.extent[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FindAccesses(const BoundsProgram& program, const BoundsFacts& facts, const InstanceBox& box,
                  std::vector<ParamAccess>* accesses) {
  accesses->assign(facts.params.size(), {});
  if (!program.is_complete) {
    return false;
  }
  if (!HasInstances(facts, box)) {
    return true;
  }
  InstanceBox inside = box;
  BoundsFacts valid = facts;
  for (int i = 0; i < 3; ++i) {
    inside.count[i] = std::min(box.count[i], facts.extent[i] - box.first[i]);
    valid.group[i] = std::max<uint64_t>(facts.group[i], 1);
  }
  return Finder(program, valid, inside).Run(accesses);
}

}  // namespace hpvm::ir
