// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact_work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/limits.h"

namespace hpvm {
namespace {

void WriteDouble(double value, WireWriter& out) { out.U64(std::bit_cast<uint64_t>(value)); }
double ReadDouble(WireReader& in) { return std::bit_cast<double>(in.U64()); }

void WriteIndices(std::span<const uint32_t> indices, WireWriter& out) {
  out.U32(static_cast<uint32_t>(indices.size()));
  for (uint32_t index : indices) {
    out.U32(index);
  }
}
std::vector<uint32_t> ReadIndices(WireReader& in) {
  std::vector<uint32_t> indices(in.Count(4));
  for (uint32_t& index : indices) {
    index = in.U32();
  }
  return indices;
}

bool AreBelow(const std::vector<uint32_t>& indices, size_t count) {
  return indices.size() <= limits::kBoundsItemsMax &&
         std::all_of(indices.begin(), indices.end(), [&](uint32_t index) { return index < count; });
}

// Far more than code of the largest module holds.
bool IsAmount(double value) { return std::isfinite(value) && value >= 0 && value <= 1e12; }

}  // namespace

void WriteWork(const ir::WorkProgram& program, WireWriter& out) {
  out.U32(static_cast<uint32_t>(program.blocks.size()));
  for (const ir::WorkBlock& block : program.blocks) {
    WriteDouble(block.operations, out);
    WriteDouble(block.bytes, out);
    WriteDouble(block.share, out);
    WriteIndices(block.conditions, out);
    WriteIndices(block.loops, out);
  }
  out.U32(static_cast<uint32_t>(program.loops.size()));
  for (const ir::WorkLoop& loop : program.loops) {
    out.U32(loop.bounds_loop);
  }
}

ir::WorkProgram ReadWork(WireReader& in) {
  ir::WorkProgram program;
  program.blocks.resize(in.Count(32));
  for (ir::WorkBlock& block : program.blocks) {
    block.operations = ReadDouble(in);
    block.bytes = ReadDouble(in);
    block.share = ReadDouble(in);
    block.conditions = ReadIndices(in);
    block.loops = ReadIndices(in);
  }
  program.loops.resize(in.Count(4));
  for (ir::WorkLoop& loop : program.loops) {
    loop.bounds_loop = in.U32();
  }
  return program;
}

Status ValidateWork(const ir::WorkProgram& program, const ir::BoundsProgram& bounds) {
  if (program.blocks.size() > limits::kBoundsItemsMax || program.loops.size() > limits::kBoundsItemsMax) {
    return InvalidArgument("The artifact's work program has more parts than the limit.");
  }
  const auto is_valid = [&](const ir::WorkBlock& block) {
    return IsAmount(block.operations) && IsAmount(block.bytes) && IsAmount(block.share) && block.share <= 1 &&
           AreBelow(block.conditions, bounds.constraints.size()) && AreBelow(block.loops, program.loops.size());
  };
  if (!std::all_of(program.blocks.begin(), program.blocks.end(), is_valid)) {
    return InvalidArgument("The artifact's work program has a malformed block.");
  }
  const auto is_known = [&](const ir::WorkLoop& loop) {
    return loop.bounds_loop == ir::WorkLoop::kUnknown || loop.bounds_loop < bounds.loops.size();
  };
  if (!std::all_of(program.loops.begin(), program.loops.end(), is_known)) {
    return InvalidArgument("The artifact's work program has a malformed loop.");
  }
  return absl::OkStatus();
}

}  // namespace hpvm
