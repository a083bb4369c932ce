// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/launch.h"

#include <algorithm>

namespace hpvm::ir {
namespace {

// Computes the first aligned address with a gap of at least 64 KiB after `end`; returns false when it overflows.
bool NextBase(uint64_t end, uint64_t* base) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(end, 2 * kBaseAlignment - 1, &sum)) {
    return false;
  }
  *base = sum & ~(kBaseAlignment - 1);
  return true;
}

std::string Triple(const std::array<uint64_t, 3>& values) {
  return '(' + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " + std::to_string(values[2]) + ')';
}

Status CheckArgument(const Module& module, size_t index, const Argument& argument) {
  const KernelParam& param = module.params[index];
  if (!param.is_buffer) {
    return absl::OkStatus();
  }
  const std::string place = "Argument " + std::to_string(index) + " (\"" + param.name + "\") ";
  if (argument.bytes > 0 && argument.data == nullptr) {
    return InvalidArgument(place + "has " + std::to_string(argument.bytes) + " bytes and no data.");
  }
  if (reinterpret_cast<uintptr_t>(argument.data) % kDataAlignment != 0) {
    return InvalidArgument(place + "is not aligned to " + std::to_string(kDataAlignment) + " bytes.");
  }
  return absl::OkStatus();
}

Status CheckStorage(const Module& module, const Launch& launch) {
  const InstanceStorage* storage = launch.instance;
  if (storage == nullptr) {
    return absl::OkStatus();
  }
  if (launch.extent != std::array<uint64_t, 3>{1, 1, 1}) {
    return InvalidArgument("The launch of an instance that the caller keeps has the extent " + Triple(launch.extent) +
                           "; it must be (1, 1, 1).");
  }
  if (storage->memory_bytes > storage->memory_bytes_max ||
      (storage->memory_bytes_max > 0 && storage->memory == nullptr) ||
      (!module.globals.empty() && storage->globals == nullptr) ||
      (module.state_bytes > 0 && storage->state == nullptr)) {
    return InvalidArgument("The instance that the caller keeps lacks memory, globals or state.");
  }
  // Buffers lie above the memory that the module declares.
  const bool has_buffer = std::ranges::any_of(module.params, [](const KernelParam& param) { return param.is_buffer; });
  if (has_buffer && storage->memory_bytes_max > module.memory_bytes_max) {
    return InvalidArgument("The memory of the instance (" + std::to_string(storage->memory_bytes_max) +
                           " bytes) may grow beyond the module's maximum (" + std::to_string(module.memory_bytes_max) +
                           ").");
  }
  return absl::OkStatus();
}

// Computes the bases of all buffers one after the other, or of each one as if it were the only buffer.
StatusOr<AddressSpace> PlaceBuffers(const Module& module, std::span<const Argument> arguments, bool separate) {
  const uint64_t limit = module.is_memory64 ? ~uint64_t{0} : uint64_t{1} << 32;
  AddressSpace space;
  space.separate = separate;
  uint64_t end = module.memory_bytes_max;
  for (size_t i = 0; i < module.params.size() && i < arguments.size(); ++i) {
    uint64_t base = 0;
    if (module.params[i].is_buffer) {
      if (!NextBase(end, &base) || base >= limit || arguments[i].bytes > limit - base) {
        return InvalidArgument("Buffer \"" + module.params[i].name + "\" (" + std::to_string(arguments[i].bytes) +
                               " bytes) does not fit the kernel's address space (" + std::to_string(limit) +
                               " bytes, of which " + std::to_string(end) + " are taken).");
      }
      end = separate ? module.memory_bytes_max : base + arguments[i].bytes;
    }
    space.base.push_back(base);
  }
  if (!module.uses_group_memory) {
    return space;
  }
  if (!NextBase(end, &space.group_base) || space.group_base >= limit ||
      kGroupMemoryBytesMax > limit - space.group_base) {
    return InvalidArgument("Group memory does not fit the kernel's address space above its buffers.");
  }
  return space;
}

}  // namespace

std::string ToString(const TrapReport& report, const Module& module) {
  std::string text(Name(report.code));
  if (report.code == TrapCode::kNone) {
    return text;
  }
  if (report.bytes != 0) {
    text += " at address " + std::to_string(report.address) + " (" + std::to_string(report.bytes) +
            (report.bytes == 1 ? " byte)" : " bytes)");
  }
  text += " in instance " + Triple(report.instance);
  if (report.function < module.functions.size()) {
    text += ", function \"" + module.functions[report.function].name + '"';
  }
  if (report.source != 0) {
    text += ", byte " + std::to_string(report.source) + " of the module";
  }
  return text;
}

StatusOr<AddressSpace> AssignAddresses(const Module& module, std::span<const Argument> arguments) {
  StatusOr<AddressSpace> shared = PlaceBuffers(module, arguments, /*separate=*/false);
  if (shared.ok() || module.is_memory64) {
    return shared;
  }
  StatusOr<AddressSpace> separate = PlaceBuffers(module, arguments, /*separate=*/true);
  if (module.has_separate_buffers || !separate.ok()) {
    return separate;
  }
  return InvalidArgument(Message(shared.status()) +
                         " Each buffer would fit an address space of its own, but addresses of a buffer escape.");
}

uint64_t WorkUnits(const Module& module, const Launch& launch) {
  if (!RunsByGroups(module)) {
    return launch.instances();
  }
  uint64_t groups = 1;
  for (int i = 0; i < 3; ++i) {
    groups *= launch.extent[i] / launch.group[i] + (launch.extent[i] % launch.group[i] != 0 ? 1 : 0);
  }
  return groups;
}

Status CheckLaunch(const Module& module, const Launch& launch) {
  if (launch.arguments.size() != module.params.size()) {
    return InvalidArgument("The launch has " + std::to_string(launch.arguments.size()) +
                           " arguments; the kernel takes " + std::to_string(module.params.size()) + ".");
  }
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    HPVMD_RETURN_IF_ERROR(CheckArgument(module, i, launch.arguments[i]));
  }
  HPVMD_RETURN_IF_ERROR(CheckStorage(module, launch));
  uint64_t instances = 1, group = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.group[i] == 0) {
      return InvalidArgument("The group " + Triple(launch.group) + " is empty.");
    }
    if (__builtin_mul_overflow(instances, launch.extent[i], &instances) ||
        __builtin_mul_overflow(group, launch.group[i], &group)) {
      return InvalidArgument("The extent " + Triple(launch.extent) + " or the group " + Triple(launch.group) +
                             " has more instances than 2^64 - 1.");
    }
  }
  if (RunsByGroups(module) && group > kGroupInstancesMax) {
    return InvalidArgument("The group " + Triple(launch.group) + " has more instances (" + std::to_string(group) +
                           ") than the limit (" + std::to_string(kGroupInstancesMax) + ").");
  }
  return absl::OkStatus();
}

}  // namespace hpvm::ir
