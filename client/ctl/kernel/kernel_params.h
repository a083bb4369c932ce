// SPDX-License-Identifier: Apache-2.0
// The parameters of kernels, as documents declare them and as the compiler finds that kernels use them.
#ifndef HPVMD_CLIENT_CTL_KERNEL_KERNEL_PARAMS_H_
#define HPVMD_CLIENT_CTL_KERNEL_KERNEL_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "compiler/api/service.h"
#include "graph/graph.h"

namespace hpvm::ctl {

// Returns the parameters of a leaf's entry, in the entry's order.
std::vector<ParamSpec> ParamsOf(const graph::Node& node);

// Returns for each of `count` parameters the widths in bytes of the accesses to its buffer; empty when none is known.
std::vector<std::set<uint32_t>> AccessWidths(const ir::BoundsProgram& program, size_t count);

// Returns the number of dimensions of the instance id (work-item id) that the kernel's addresses use: 0 to 3.
uint32_t InstanceDimensions(const ir::BoundsProgram& program);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_KERNEL_PARAMS_H_
