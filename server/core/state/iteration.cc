// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/iteration.h"

#include <algorithm>
#include <cctype>

#include "proto/internal/protocol.h"

namespace hpvm::server {
namespace {

constexpr size_t kPortNameBytesMax = 255;  // The limit in graph documents.

// Checks only the form of names in documents; the executor checks that the graph has such a port.
bool IsPortName(const std::string& name) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kPortNameBytesMax && std::all_of(name.begin(), name.end(), is_word);
}

Status RefuseName(const std::string& what, const std::string& name) {
  return InvalidArgument(what + " (\"" + CleanText(name, 80, false) +
                         "\") is not the name of a port: letters, digits, _ and -, at most " +
                         std::to_string(kPortNameBytesMax) + " characters.");
}

}  // namespace

Status SetIteration(const google::protobuf::RepeatedPtrField<v1::Rotation>& rotations, const std::string& until,
                    internal::RunOptions* options) {
  if (static_cast<uint32_t>(rotations.size()) > kPortsMax) {
    return InvalidArgument("There are more rotations (" + std::to_string(rotations.size()) + ") than the limit (" +
                           std::to_string(kPortsMax) + ").");
  }
  for (const v1::Rotation& rotation : rotations) {
    if (!IsPortName(rotation.output())) {
      return RefuseName("A rotation's output", rotation.output());
    }
    if (!IsPortName(rotation.input())) {
      return RefuseName("A rotation's input", rotation.input());
    }
    *options->add_rotations() = rotation;
  }
  if (!until.empty() && !IsPortName(until)) {
    return RefuseName("The output that ends a run (until)", until);
  }
  options->set_until(until);
  return absl::OkStatus();
}

}  // namespace hpvm::server
