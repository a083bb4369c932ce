// SPDX-License-Identifier: Apache-2.0
// CheckBarriers refuses barriers under control that varies between the instances of a group.
//
// A refused barrier depends on the instance's id for certain; control that depends on memory is left to the check at
// run time (docs/KERNELS.md). local_alloc counts as a barrier: its n-th call must be the same for all instances.
#ifndef HPVMD_COMPILER_PASS_CHECK_BARRIERS_H_
#define HPVMD_COMPILER_PASS_CHECK_BARRIERS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/diagnostic.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass {

// Returns the name of a byte of the module's file for messages: "byte 117", or a line of the source.
using NamePlace = std::function<std::string(uint32_t source)>;

// Appends one error per barrier, at its byte offset. `place` names the module. Requires a verified module.
void CheckBarriers(const ir::Module& module, const std::string& place, Diagnostics& diagnostics,
                   const NamePlace& name_place = {});

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_CHECK_BARRIERS_H_
