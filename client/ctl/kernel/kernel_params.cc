// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/kernel_params.h"

#include <algorithm>

namespace hpvm::ctl {
namespace {

ir::Type TypeOf(graph::ScalarType type) {
  constexpr ir::Type kTypes[] = {ir::Type::kI32, ir::Type::kI64, ir::Type::kF32, ir::Type::kF64};
  return kTypes[static_cast<size_t>(type)];
}

}  // namespace

std::vector<ParamSpec> ParamsOf(const graph::Node& node) {
  std::vector<ParamSpec> params;
  for (const uint32_t index : node.params) {
    ParamSpec& param = params.emplace_back();
    if (index < node.ports.size()) {
      param.name = node.ports[index].name;
      param.is_writable = node.ports[index].access != graph::Access::kIn;
      param.is_read = node.ports[index].access != graph::Access::kOut;
      continue;
    }
    const graph::Scalar& scalar = node.scalars[index - node.ports.size()];
    param.name = scalar.name;
    param.is_buffer = false;
    param.scalar = TypeOf(scalar.type);
  }
  return params;
}

std::vector<std::set<uint32_t>> AccessWidths(const ir::BoundsProgram& program, size_t count) {
  std::vector<std::set<uint32_t>> widths(count);
  for (const auto* accesses : {&program.accesses, &program.by_words, &program.others}) {
    for (const ir::BoundsAccess& access : *accesses) {
      if (access.param < count && access.width != 0) {
        widths[access.param].insert(access.width);
      }
    }
  }
  return widths;
}

uint32_t InstanceDimensions(const ir::BoundsProgram& program) {
  uint32_t dimensions = 0;
  for (const ir::Atom& atom : program.atoms) {
    if (atom.kind == ir::Atom::Kind::kInstanceId) {
      dimensions = std::max(dimensions, atom.index + 1);
    }
  }
  return dimensions;
}

}  // namespace hpvm::ctl
