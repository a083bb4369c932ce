// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/source_text.h"

#include <algorithm>

#include "compiler/ir/loops_cut.h"

namespace hpvm {

const SourceLine* FindLine(const Artifact& artifact, uint32_t source) {
  if (source == 0) {
    return nullptr;
  }
  const auto next = std::ranges::upper_bound(artifact.lines, source, {}, &SourceLine::offset);
  if (next == artifact.lines.begin()) {
    return nullptr;
  }
  const SourceLine& line = *(next - 1);
  return line.line != 0 && line.file < artifact.files.size() ? &line : nullptr;
}

std::string PlaceOf(const Artifact& artifact, uint32_t source) {
  if (const SourceLine* line = FindLine(artifact, source)) {
    return artifact.files[line->file] + ":" + std::to_string(line->line) +
           (line->column != 0 ? ":" + std::to_string(line->column) : std::string());
  }
  return source == 0 ? "" : "byte " + std::to_string(source) + " of module \"" + artifact.module_name + "\"";
}

std::string DescribeTrap(const ir::TrapReport& trap, const Artifact& artifact) {
  std::string text(ir::Name(trap.code));
  if (trap.code == ir::kLoopsCut) {
    return text;  // A driver cuts off all instances of a vector together, so the instance is unknown.
  }
  if (trap.bytes != 0) {
    text += " at address " + std::to_string(trap.address) + " (" + std::to_string(trap.bytes) +
            (trap.bytes == 1 ? " byte)" : " bytes)");
  }
  text += " in instance (" + std::to_string(trap.instance[0]) + ", " + std::to_string(trap.instance[1]) + ", " +
          std::to_string(trap.instance[2]) + ")";
  if (trap.function < artifact.function_names.size()) {
    text += ", function \"" + artifact.function_names[trap.function] + "\"";
  }
  const std::string place = PlaceOf(artifact, trap.source);
  return place.empty() ? text : text + ", " + place;
}

}  // namespace hpvm
