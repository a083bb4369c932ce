// SPDX-License-Identifier: Apache-2.0
// WidenLoads turns neighbouring loads of an instance into one of 16 bytes: for example, four words of a structure, or
// a complex number of two f64. GPUs load 16 bytes in the time of four.
#ifndef HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_
#define HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compiler/pass/rewrite/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::pass {

// Returns the module with wide loads, whose needs_alignment is set: they are aligned only if buffers begin at
// multiples of 16 bytes. Joined loads are in one region, with no operation between them that writes, waits, traps or
// branches. `is_free`, by OpId of the entry: accesses that stay inside their buffers wherever they are reached.
// `module` is the module of `coarse`, which may be null, and the result replaces `coarse`. Returns nothing if no loads
// are joined.
std::optional<CoarseModule> WidenLoads(const ir::Module& module, const std::vector<bool>& is_free,
                                       const CoarseModule* coarse);

// Shared with passes that join loads themselves. `loads` are by offset in bytes from a common value, each `width` (4
// or 8) bytes wide. Returns the groups of loads that make up 16 bytes, the lowest first. `is_aligned` is called with
// the lowest, `may_join` with the lowest and each of the others.
std::vector<std::vector<ir::OpId>> FindWideLoads(const std::map<int64_t, ir::OpId>& loads, uint32_t width,
                                                 const std::function<bool(ir::OpId)>& is_aligned,
                                                 const std::function<bool(ir::OpId, ir::OpId)>& may_join);

// Writes the load of 16 bytes that replaces `loads` of `from` (the lowest first), whose address is `address` here, and
// extracts a value for each of the loads, of its type.
struct WideLoad {
  ir::OpId op;
  std::vector<ir::ValueId> values;
};
WideLoad AppendWideLoad(ir::Builder& builder, const ir::Function& from, std::span<const ir::OpId> loads,
                        ir::ValueId address, bool is_inside);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_TILE_WIDE_LOADS_H_
