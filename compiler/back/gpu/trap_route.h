// SPDX-License-Identifier: Apache-2.0
// Where an instance that traps goes in a kernel with barriers (TrapExit::kPostpone).
//
// It must still meet the barriers of its group. The nearest place is sought that every instance of the group reaches
// and that lies in front of the next barrier on all paths: right before a barrier, or before a construct with one, or
// before a branch that decides which barrier is next.
//
// From there the instance goes on with the others to whichever barrier is next, if it finds its way: up to the barriers
// there is nothing but control and operations without effects, and nothing that it has skipped decides about the way.
// The place is moved up where it takes no more than that for the instance to compute what decides. What else it has
// skipped is zero to it: behind the barrier the flag of the group is tested, and all return if it is set. Otherwise all
// wait at the place, at a barrier of its own, and test the flag there.
//
// Two flags take turns. All instances of a group pass the same places where it is tested, in one order, so they agree
// on which is next; from one such place to the next an instance sets one flag alone, which is read behind the barrier
// there; and none sets it again before all have read it, as the next but one place lies behind another barrier.
#ifndef HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
#define HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_

#include <functional>
#include <map>
#include <vector>

#include "compiler/ir/words.h"

namespace hpvm::gpu {

using namespace ir::words;

// The place where instances that have trapped come back.
struct TrapPlace {
  ir::OpId first;      // The operation in the same region in which the first of them does, or which that stands in.
  bool waits = false;  // All wait there and test the flag; else control goes on, and whoever has trapped with it.
  // Results between the two that are used from here on, but for constants: emitters write these where they are read. If
  // control goes on to something else than a barrier, they must be defined for whoever has trapped, as it computes with
  // them, and compilers may take what is not for any value, and for another one each time.
  std::vector<ir::ValueId> kept;
  bool defines = false;
};

struct TrapRoutes {
  // By OpId of the entry: the operation in front of which an instance that traps in this one comes back. That operation
  // stands behind this one in the same region or an enclosing one. Invalid: it just ends; no barrier follows, or
  // control is such that there is no place to meet, in which case the driver decides what a barrier does that not all
  // reach.
  std::vector<ir::OpId> place;
  std::map<uint32_t, TrapPlace> places;  // By OpId of those.
  std::vector<ir::OpId> place_behind;    // By OpId of TrapPlace::first: the place.
  // By OpId of barriers: behind it all test the flag.
  std::vector<bool> tests;
};

// `can_trap` holds for every operation that may trap in the variant.
TrapRoutes FindTrapRoutes(const ir::Module& module, const std::function<bool(ir::OpId)>& can_trap);

// True if an operation may end the instance, as far as is known before it is written; `omits_check`: nothing looks
// whether its bytes lie in what it was computed from.
bool MayTrap(const ir::Module& module, ir::OpId id, bool omits_check);

}  // namespace hpvm::gpu

#endif  // HPVMD_COMPILER_BACK_GPU_TRAP_ROUTE_H_
