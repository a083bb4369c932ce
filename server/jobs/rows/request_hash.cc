// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/request_hash.h"

#include <algorithm>
#include <map>
#include <string>

namespace hpvm::server {
namespace {

template <typename Shape>
std::string TensorText(uint32_t type, const Shape& shape, std::string_view sha256) {
  std::string text = "tensor " + std::to_string(type);
  for (const uint64_t extent : shape) {
    text += "," + std::to_string(extent);
  }
  return text + ":" + std::string(sha256);
}

// A buffer that the job also writes has other bytes afterwards: it is represented by its id, so that the same request
// sent again has the same hash.
bool IsWritten(const v1::SubmitRequest& request, const std::string& buffer_id) {
  return std::any_of(request.outputs().begin(), request.outputs().end(), [&](const v1::OutputBinding& output) {
    return output.has_buffer_id() && output.buffer_id() == buffer_id;
  });
}

std::string InputText(const v1::SubmitRequest& request, const v1::InputBinding& input,
                      const internal::StoredInput* stored) {
  if (input.array_index()) {
    return "index";
  }
  if (input.has_tensor()) {
    const v1::Tensor& tensor = input.tensor();
    return TensorText(static_cast<uint32_t>(tensor.type()), tensor.shape(), Raw(HashOf(tensor.data())));
  }
  if (stored == nullptr) {
    return "none";
  }
  if (IsWritten(request, input.buffer().buffer_id())) {
    return "in place " + input.buffer().buffer_id();
  }
  return TensorText(stored->type(), stored->shape(),
                    stored->sha256().empty() ? Raw(HashOf(std::string_view())) : stored->sha256());
}

std::string OutputText(const v1::OutputBinding& output) {
  switch (output.target_case()) {
    case v1::OutputBinding::kBufferId:
      return "buffer " + output.buffer_id();
    case v1::OutputBinding::kNewBuffer:
      return output.new_buffer() ? "new" : "";
    case v1::OutputBinding::kDiscard:
      return output.discard() ? "discard" : "";
    case v1::OutputBinding::TARGET_NOT_SET:
      break;
  }
  return "";
}

// Adds a list with its length, so that no list can be taken for another.
void AddAll(Hasher& hasher, std::string_view what, const std::multimap<std::string, std::string>& pairs) {
  hasher.AddField(what);
  hasher.AddField(std::to_string(pairs.size()));
  for (const auto& [name, value] : pairs) {
    hasher.AddField(name);
    hasher.AddField(value);
  }
}

}  // namespace

Sha256 HashOfRequest(const StoredRequest& stored) {
  const v1::SubmitRequest& request = stored.request();
  std::map<uint32_t, const internal::StoredInput*> by_position;
  for (const internal::StoredInput& input : stored.inputs()) {
    by_position[input.index()] = &input;
  }
  std::multimap<std::string, std::string> modules, inputs, outputs, symbols, after;
  for (const v1::ModuleBinding& module : request.document().modules()) {
    modules.emplace(module.name(), module.sha256());
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto found = by_position.find(static_cast<uint32_t>(i));
    inputs.emplace(request.inputs(i).name(),
                   InputText(request, request.inputs(i), found == by_position.end() ? nullptr : found->second));
  }
  for (const v1::OutputBinding& output : request.outputs()) {
    if (const std::string text = OutputText(output); !text.empty()) {
      outputs.emplace(output.name(), text);
    }
  }
  for (const auto& [symbol, value] : request.symbols()) {
    symbols.emplace(symbol, std::to_string(value));
  }
  for (const v1::JobDependency& dependency : request.after()) {
    const int condition = dependency.condition() == 0 ? 1 : static_cast<int>(dependency.condition());
    after.emplace(dependency.job_id(), std::to_string(condition));
  }
  Hasher hasher;
  hasher.AddField("submit 1");
  hasher.AddField(request.document().graph_sha256());
  hasher.AddField(stored.check() ? "check" : "");
  AddAll(hasher, "modules", modules);
  AddAll(hasher, "inputs", inputs);
  AddAll(hasher, "outputs", outputs);
  AddAll(hasher, "symbols", symbols);
  AddAll(hasher, "after", after);
  hasher.AddField(std::to_string(request.repeat() == 0 ? 1 : request.repeat()));
  hasher.AddField(request.name());
  const v1::JobArray& array = request.array();
  hasher.AddField(!request.has_array() ? std::string()
                                       : std::to_string(array.first()) + "-" + std::to_string(array.last()) + ":" +
                                             std::to_string(array.step()) + "%" + std::to_string(array.running_max()) +
                                             " " + array.symbol());
  hasher.AddField(std::to_string(request.retry().attempts_max()));
  // Added only when present: hashes of other requests are on disk from releases without these fields.
  if (!request.rotations().empty() || !request.until().empty()) {
    std::multimap<std::string, std::string> rotations;
    for (const v1::Rotation& rotation : request.rotations()) {
      rotations.emplace(rotation.output(), rotation.input());
    }
    AddAll(hasher, "rotations", rotations);
    hasher.AddField(request.until());
  }
  // Likewise.
  if (request.held() || request.has_limits()) {
    const v1::JobLimits& limits = request.limits();
    hasher.AddField(request.held() ? "held" : "");
    hasher.AddField(std::to_string(limits.wait_ns()) + " " + std::to_string(limits.run_ns()) + " " +
                    std::to_string(limits.device_ns()));
  }
  return hasher.Finish();
}

Sha256 HashOfRetry(const std::string& job_id) {
  Hasher hasher;
  hasher.AddField("retry 1");
  hasher.AddField(job_id);
  return hasher.Finish();
}

}  // namespace hpvm::server
