// SPDX-License-Identifier: Apache-2.0
// Decides where an instance that traps continues in a kernel with barriers (TrapExit::kPostpone).
//
// A trapped instance must still meet the barriers of its group. The search finds the nearest rejoin point that every
// instance of the group reaches and that precedes the next barrier on all paths: right before a barrier, before a
// construct that contains one, or before a branch that decides which barrier is next.
//
// From there the instance continues with the others to the next barrier if it can follow the path: up to the barriers
// there are only control and operations without effects, and no value that it skipped decides about the path. The
// rejoin point moves up if that suffices for the instance to compute the deciding values. Its other skipped values are
// zero; after the barrier the group's flag is tested, and all instances return if it is set. If the path cannot be
// followed, all instances wait at the rejoin point, at an additional barrier, and test the flag there.
//
// Two flags alternate. All instances of a group pass the same tested rejoin points in the same order, so they agree on
// which flag is next. Between two tested rejoin points an instance sets only one flag, which is read after the barrier
// there. No instance sets it again before all have read it, because the tested rejoin point after next is behind
// another barrier.
#ifndef HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
#define HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_

#include <functional>
#include <map>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// A rejoin point is the operation where trapped instances rejoin their group.
struct RejoinPoint {
  ir::OpId first;      // First operation of the same region that traps to this rejoin point or contains such a trap.
  bool waits = false;  // All wait and test the flag there; else control continues, trapped instances included.
  // Results, except constants, of the operations from `first` up to the rejoin point that are used from here on;
  // emitters write them where they are read. If control continues to something other than a barrier, they must be
  // defined for trapped instances, which compute with them: compilers may take an undefined value for any value, and
  // for a different one at each use.
  std::vector<ir::ValueId> kept;
  bool defines = false;
};

struct TrapRoutes {
  // Indexed by OpId of the entry: the operation before which an instance that traps in this one rejoins its group. It
  // follows this operation in the same region or an enclosing one. Invalid when the instance just ends: either no
  // barrier follows, or control offers no rejoin point, and then the driver decides what a barrier does that not all
  // instances reach.
  std::vector<ir::OpId> rejoin;
  std::map<uint32_t, RejoinPoint> rejoin_points;  // Indexed by OpId of the rejoin point.
  std::vector<ir::OpId> rejoin_after;             // Indexed by OpId of RejoinPoint::first: the rejoin point.
  // Indexed by OpId of barriers: true if all instances test the flag after it.
  std::vector<bool> tests;
};

// `can_trap` returns true for every operation that may trap in the variant.
TrapRoutes FindTrapRoutes(const ir::Module& module, const std::function<bool(ir::OpId)>& can_trap);

// Returns true if an operation may end the instance, as far as is known before code emission; `omits_check`: the
// access has no range check.
bool MayTrap(const ir::Module& module, ir::OpId id, bool omits_check);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
