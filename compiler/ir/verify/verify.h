// SPDX-License-Identifier: Apache-2.0
// Checks what every module must satisfy before it is interpreted, transformed or translated. Code that runs after
// Verify may rely on:
//
// Module
//  M1  memory_bytes is a multiple of 64 KiB, memory_bytes <= memory_bytes_max <= limits::kModuleMemoryBytesMax (also
//      a multiple).
//  M2  Data segments are sorted by address, do not overlap and lie in [0, memory_bytes).
//  M3  Globals' bits fit their types.
//  M4  The entry is a function of the module; it takes `params` in order and returns nothing. A buffer's parameter is
//      of the address type.
//  M5  uses_barrier and uses_group_memory are set if a function reachable from the entry has a barrier or a
//      local_alloc.
//  M6  state_bytes is at most limits::kModuleStateBytesMax; its segments are as those of M2, in [0, state_bytes).
//  M7  References are numbered from first_reference >= 1 below 2^32; each names a function of the module and a
//      reference type with the function's parameters and results.
//  M8  stack_pointer names a mutable global of the address type.
//  M9  stack_frame is not empty, lies in [0, memory_bytes), begins and ends at multiples of 8 and has a unit of 4 or 8.
// Structure of a function
//  F1  Every id is in range. The regions form a tree: each is owned once, by the operation that its `owner` names;
//     the body has no owner.
//  F2  An operation is in at most one region, once. A value is defined at most once. Regions nest at most
//     kRegionDepthMax deep.
//  F3  A region is not empty; its last operation, and no other, is a terminator.
//  F4  A value is used only after its definition, inside the region that defines it or regions nested in it.
//  F5  The body's parameters are the function type's; a block's or loop's have the types of its operands; an if's
//      regions have none.
// Operations
//  O1  Operands, results, Op::type, width, sign and imm are as opcodes.def specifies; constants of 4 bytes have a zero
//     upper half.
//  O2  A target encloses the terminator; `continue` names a loop. The values have the types of the target's results
//      (leave) or of the loop's parameters (continue).
//  O3  Calls name a function or a reference type of the module and match its signature; the same holds for globals,
//     and only mutable globals are set. memory_init names a passive segment.
//  O4  Space param(k) names a buffer parameter. Space private is not in use yet and is refused. Space state takes an
//     i32 offset and no atomics. Space stack takes no atomics; it occurs only in the entry of a module with a
//     stack_frame, with an immediate that is at most stack_frame.begin.
//  O5  The number of values that the function's br_tables pass, counted once per distinct target, is at most
//     kTableValuesPerValue times the function's values (and 4096): back ends' expansion stays linear in the module's
//     size.
//  O6  A print names a format and passes at most limits::kPrintOperandsMax values; all prints of a format pass values
//      of the same types.
#ifndef HPVMD_COMPILER_IR_VERIFY_VERIFY_H_
#define HPVMD_COMPILER_IR_VERIFY_VERIFY_H_

#include <cstdint>

#include "base/diagnostic.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Depth that recursive readers of the IR (back ends) can afford on an 8 MiB stack at 1 KiB per level.
inline constexpr uint32_t kRegionDepthMax = 4096;
// See O5. Real switches stay near 1, since each target has a result for every value.
inline constexpr uint64_t kTableValuesPerValue = 64;

// Returns no faults when the module is valid, and at most limits::kDiagnosticsMax faults. Safe on any Module. Takes
// about linear time; not recursive.
Diagnostics Verify(const Module& module);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_VERIFY_VERIFY_H_
