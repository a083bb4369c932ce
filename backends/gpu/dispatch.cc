// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/dispatch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/gpu/known_words.h"
#include "backends/shared/proof_cache.h"

namespace hpvm::gpu {

LaunchReader::LaunchReader(const Artifact& artifact) : artifact_(artifact) {
  for (const GpuVariant& variant : artifact.gpu.variants) {
    for (const GpuArgument& argument : variant.arguments) {
      has_addresses_ |=
          argument.kind == GpuArgument::Kind::kBufferBase || argument.kind == GpuArgument::Kind::kGroupBase;
    }
  }
  if (std::ranges::any_of(artifact.gpu.variants, [](const GpuVariant& variant) { return variant.needs_words; })) {
    words_ = backends::ProofParamsOf(artifact).words;
  }
  outline_.is_memory64 = artifact.is_memory64;
  outline_.memory_bytes = artifact.memory_bytes;
  outline_.memory_bytes_max = artifact.memory_bytes_max;
  outline_.params = artifact.params;
  outline_.uses_barrier = artifact.uses_barrier;
  outline_.uses_group_memory = artifact.uses_group_memory;
  outline_.has_separate_buffers = artifact.has_separate_buffers;
}

Status ReadBox(const DispatchCommand& dispatch, LaunchFacts* facts) {
  facts->extent = dispatch.extent;
  facts->group = dispatch.group;
  facts->first = dispatch.first;
  for (size_t d = 0; d < 3; ++d) {
    if (dispatch.extent_from[d].slot != kNoSlot) {
      return Internal("A device behind a driver was given a launch whose extent is not known yet.");
    }
    const uint64_t extent = dispatch.extent[d], first = dispatch.first[d];
    const uint64_t group = std::max<uint64_t>(dispatch.group[d], 1);
    const uint64_t left = extent - std::min(first, extent);
    facts->count[d] = std::min(dispatch.count[d], left);
    const bool is_cut = facts->count[d] < left && facts->count[d] % group != 0;
    if (first > extent || first % group != 0 || is_cut) {
      return Internal("Instances " + std::to_string(first) + " to " + std::to_string(first + facts->count[d]) +
                      " of dimension " + std::to_string(d) + " are not whole groups of a launch of " +
                      std::to_string(extent) + " in groups of " + std::to_string(group) + ".");
    }
  }
  return absl::OkStatus();
}

Status LaunchReader::Read(const DispatchCommand& dispatch, const Submission& submission, LaunchInputs* inputs) const {
  const size_t count = artifact_.params.size();
  const std::vector<DispatchArgument>& arguments = submission.commands->arguments;
  if (dispatch.argument_count != count || dispatch.first_argument > arguments.size() ||
      count > arguments.size() - dispatch.first_argument) {
    return Internal("Dispatch has " + std::to_string(dispatch.argument_count) + " arguments; kernel \"" +
                    artifact_.entry + "\" takes " + std::to_string(count) + ".");
  }
  HPVMD_RETURN_IF_ERROR(ReadBox(dispatch, &inputs->facts));
  inputs->facts.params.resize(count);
  inputs->buffers.resize(count);
  for (size_t i = 0; i < count; ++i) {
    HPVMD_RETURN_IF_ERROR(ReadArgument(i, arguments[dispatch.first_argument + i], submission, inputs));
  }
  ReadWords(inputs);
  ForgetWritten(*inputs);
  return has_addresses_ ? AssignAddresses(inputs) : absl::OkStatus();
}

void LaunchReader::ReadWords(LaunchInputs* inputs) const {
  for (const uint32_t index : words_) {
    Buffer* const buffer = inputs->buffers[index];
    LaunchFacts::Param& param = inputs->facts.params[index];
    // A buffer visible to the host is refused later.
    if (buffer != nullptr && buffer->host() == nullptr && !IsWritten(*inputs, index)) {
      // Safety: a buffer that the host cannot see belongs to the driver.
      param.words = static_cast<GpuBuffer*>(buffer)->words().Of(param.start, param.value);
    }
  }
}

void LaunchReader::ForgetWritten(const LaunchInputs& inputs) const {
  for (size_t i = 0; i < inputs.buffers.size(); ++i) {
    Buffer* const buffer = inputs.buffers[i];
    // A tenant's own code for the device may write to any argument.
    if (buffer != nullptr && buffer->host() == nullptr &&
        (artifact_.params[i].is_writable || artifact_.gpu.is_native)) {
      const LaunchFacts::Param& param = inputs.facts.params[i];
      // Safety: a buffer that the host cannot see belongs to the driver.
      static_cast<GpuBuffer*>(buffer)->words().Forget(param.start, param.value);
    }
  }
}

// Returns true when the launch may write it, as this parameter or as another one in the same memory.
bool LaunchReader::IsWritten(const LaunchInputs& inputs, size_t index) const {
  const LaunchFacts::Param& words = inputs.facts.params[index];
  for (size_t i = 0; i < artifact_.params.size(); ++i) {
    const LaunchFacts::Param& other = inputs.facts.params[i];
    if (artifact_.params[i].is_buffer && artifact_.params[i].is_writable &&
        inputs.buffers[i] == inputs.buffers[index] && other.start < words.start + words.value &&
        words.start < other.start + other.value) {
      return true;
    }
  }
  return false;
}

Status LaunchReader::ReadArgument(size_t index, const DispatchArgument& argument, const Submission& submission,
                                  LaunchInputs* inputs) const {
  LaunchFacts::Param& param = inputs->facts.params[index];
  if (argument.is_buffer != artifact_.params[index].is_buffer) {
    return Internal("Argument " + std::to_string(index) + " (\"" + artifact_.params[index].name +
                    "\") is of the wrong kind.");
  }
  if (argument.is_buffer) {
    HPVMD_ASSIGN_OR_RETURN(inputs->buffers[index],
                           ViewedBuffer(submission, argument.slot, argument.offset, argument.bytes));
    param = {argument.bytes, argument.offset, {}};
    return absl::OkStatus();
  }
  if (argument.slot != kNoSlot && argument.slot >= submission.scalars.size()) {
    return Internal("Scalar slot (" + std::to_string(argument.slot) + ") is not bound; the submission has " +
                    std::to_string(submission.scalars.size()) + " slots.");
  }
  inputs->buffers[index] = nullptr;
  param = {argument.slot == kNoSlot ? argument.scalar : submission.scalars[argument.slot], 0, {}};
  return absl::OkStatus();
}

Status LaunchReader::AssignAddresses(LaunchInputs* inputs) const {
  std::vector<ir::Argument> arguments(inputs->facts.params.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i].bytes = artifact_.params[i].is_buffer ? inputs->facts.params[i].value : 0;
  }
  HPVMD_ASSIGN_OR_RETURN(ir::AddressSpace space, ir::AssignAddresses(outline_, arguments));
  inputs->base = std::move(space.base);
  inputs->group_base = space.group_base;
  return absl::OkStatus();
}

StatusOr<Buffer*> ViewedBuffer(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes) {
  if (slot >= submission.buffers.size() || submission.buffers[slot] == nullptr) {
    return Internal("Buffer slot (" + std::to_string(slot) + ") is not bound; the submission has " +
                    std::to_string(submission.buffers.size()) + " slots.");
  }
  Buffer* buffer = submission.buffers[slot];
  if (offset > buffer->bytes() || bytes > buffer->bytes() - offset) {
    return Internal("View at byte " + std::to_string(offset) + " of " + std::to_string(bytes) +
                    " bytes does not fit buffer slot " + std::to_string(slot) + " (" + std::to_string(buffer->bytes()) +
                    " bytes).");
  }
  return buffer;
}

void NoteVariant(const Chosen& chosen, const DispatchCommand& dispatch, const Submission& submission) {
  if (!chosen.parts.empty() && dispatch.node < submission.timings.size()) {
    submission.timings[dispatch.node].variant = static_cast<uint8_t>(chosen.parts.front().variant);
    submission.timings[dispatch.node].is_settled = !chosen.is_measured;
  }
}

bool IsEmpty(const DispatchCommand& dispatch) {
  for (size_t d = 0; d < 3; ++d) {
    if (dispatch.extent[d] == 0 || dispatch.count[d] == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace hpvm::gpu
