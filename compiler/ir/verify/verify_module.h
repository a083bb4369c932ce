// SPDX-License-Identifier: Apache-2.0
// The checks of verify.h that concern more than one function.
#ifndef HPVMD_COMPILER_IR_VERIFY_VERIFY_MODULE_H_
#define HPVMD_COMPILER_IR_VERIFY_VERIFY_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/diagnostic.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

// Adds a fault unless `out` already has limits::kDiagnosticsMax faults.
void ReportFault(Diagnostics& out, std::string place, std::string message, uint32_t source = 0);
inline bool IsInRange(uint64_t first, uint64_t count, uint64_t size) { return first <= size && count <= size - first; }

// Checks M1 to M9 except M5.
void VerifyModule(const Module& module, Diagnostics& out);
// Checks M5 and the types of O6; requires functions that verify.
void VerifyUses(const Module& module, Diagnostics& out);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_VERIFY_VERIFY_MODULE_H_
