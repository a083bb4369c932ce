// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/work.h"

#include <cstdlib>
#include <utility>

namespace hpvm::chaos {
namespace {

constexpr const char* kNames[kKinds] = {"add", "bump", "large", "slow", "trap", "spin", "array"};
// Per 100 jobs.
constexpr int kWeights[kKinds] = {44, 14, 8, 12, 8, 6, 8};

Kind Draw(Rng& rng) {
  int left = static_cast<int>(rng.Below(100));
  for (int i = 0; i < kKinds; ++i) {
    left -= kWeights[i];
    if (left < 0) {
      return static_cast<Kind>(i);
    }
  }
  return Kind::kAdd;
}

std::string Port(const std::string& name, const std::string& access, const std::string& shape) {
  return R"({"name":")" + name + R"(","access":")" + access + R"(","type":"i32","shape":[)" + shape + "]}";
}

}  // namespace

const char* Name(Kind kind) { return kNames[static_cast<int>(kind)]; }

std::string ToText(const Work& work) {
  const auto field = [](const char* name, uint64_t value) {
    return std::string("\t") + name + "=" + std::to_string(value);
  };
  return "key=" + work.key + "\tkind=" + Name(work.kind) + field("amount", work.amount) + field("seed", work.seed) +
         field("count", work.count) + field("elements", work.elements) + "\tretry_of=" + work.retry_of +
         "\tafter=" + work.after + field("condition", static_cast<uint64_t>(work.condition)) +
         field("deadline_ms", work.deadline_ms) + field("attempts_max", work.attempts_max);
}

Work WorkOf(const std::map<std::string, std::string>& fields) {
  const auto text = [&](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* name) { return std::strtoull(text(name).c_str(), nullptr, 10); };
  Work work;
  work.key = text("key");
  for (int i = 0; i < kKinds; ++i) {
    work.kind = text("kind") == kNames[i] ? static_cast<Kind>(i) : work.kind;
  }
  work.amount = static_cast<uint32_t>(number("amount"));
  work.seed = number("seed");
  work.count = static_cast<uint32_t>(number("count"));
  work.elements = static_cast<uint32_t>(number("elements"));
  work.retry_of = text("retry_of");
  work.after = text("after");
  work.condition = static_cast<int>(number("condition"));
  work.deadline_ms = number("deadline_ms");
  work.attempts_max = static_cast<uint32_t>(number("attempts_max"));
  return work;
}

Work MakeWork(Rng& rng, std::string key, const std::string& earlier) {
  Work work;
  work.key = std::move(key);
  work.kind = Draw(rng);
  work.amount = 1 + static_cast<uint32_t>(rng.Below(4));
  work.seed = rng.Below(1'000'000);
  switch (work.kind) {
    case Kind::kLarge:
      work.count = 16'384;
      break;
    case Kind::kSlow:
      work.count = 4;
      break;
    case Kind::kSpin:
      work.count = 1;
      work.deadline_ms = 300 + rng.Below(1'500);
      break;
    case Kind::kArray:
      work.count = 1;
      work.elements = 2 + static_cast<uint32_t>(rng.Below(6));
      break;
    default:
      break;
  }
  if (!earlier.empty() && work.kind != Kind::kSpin && rng.Below(100) < 15) {
    work.after = earlier;
    work.condition = static_cast<int>(rng.Below(4));
  }
  return work;
}

std::string InputOf(Kind kind) { return kind == Kind::kBump || kind == Kind::kSpin ? "data" : "in"; }
std::string OutputOf(Kind kind) { return kind == Kind::kBump || kind == Kind::kSpin ? "data_out" : "out"; }

std::string DocumentOf(Kind kind, uint32_t amount) {
  const bool in_place = kind == Kind::kBump || kind == Kind::kSpin, is_scalar = kind == Kind::kArray;
  const std::string shape = is_scalar ? "" : "\"n\"";
  const std::string entry = kind == Kind::kBump   ? "add_in_place"
                            : kind == Kind::kTrap ? "divide"
                            : kind == Kind::kSpin ? "spin"
                            : kind == Kind::kSlow ? "busy"
                                                  : "add";
  const std::string ports =
      in_place ? Port("data", "inout", shape) : Port("in", "in", shape) + "," + Port("out", "out", shape);
  const auto scalar = [](const char* name, uint32_t value) {
    return std::string(R"({"name":")") + name + R"(","type":"i32","value":)" + std::to_string(value) + "}";
  };
  std::string scalars = kind == Kind::kTrap || kind == Kind::kSpin ? "" : scalar("amount", amount);
  scalars += kind == Kind::kSlow ? "," + scalar("rounds", 10 * amount) : "";
  const std::string type = R"({"type":"i32","shape":[)" + shape + "]}";
  const std::string from = in_place ? "node.data" : "node.out", to = in_place ? "node.data" : "node.in";
  return R"({"hpvm":1,"name":")" + entry + std::to_string(amount) + R"(","symbols":[)" + shape + R"(],"inputs":{")" +
         InputOf(kind) + R"(":)" + type + R"(},"outputs":{")" + OutputOf(kind) + R"(":)" + type +
         R"(},"modules":{"k":{"kind":"wasm","source":{"file":"kernels.wasm"}}},"nodes":{"node":{"ports":[)" + ports +
         R"(],"scalars":[)" + scalars + R"(],"instances":[)" + (is_scalar ? "\"1\"" : shape) +
         R"(],"variants":[{"module":"k","entry":")" + entry + R"("}]}},"edges":[{"from":")" + InputOf(kind) +
         R"(","to":")" + to + R"("},{"from":")" + from + R"(","to":")" + OutputOf(kind) + R"("}]})";
}

std::vector<int32_t> ValuesOf(const Work& work) {
  std::vector<int32_t> values(work.count);
  for (uint32_t i = 0; i < work.count; ++i) {
    values[i] = static_cast<int32_t>((work.seed + 7 * i) % 1'000 + 1);
  }
  if (work.kind == Kind::kTrap) {
    values[work.count / 2] = 0;
  }
  if (work.kind == Kind::kSpin) {
    values[0] = 0;
  }
  return values;
}

v1::SubmitRequest RequestOf(const Work& work, const std::string& graph_sha256, const std::string& module_sha256) {
  v1::SubmitRequest request;
  request.mutable_options()->set_idempotency_key(work.key);
  request.mutable_options()->set_deadline_ns(work.deadline_ms * 1'000'000);
  (*request.mutable_options()->mutable_labels())["kind"] = Name(work.kind);
  request.mutable_document()->set_graph_sha256(graph_sha256);
  v1::ModuleBinding* module = request.mutable_document()->add_modules();
  module->set_name("k");
  module->set_sha256(module_sha256);
  v1::InputBinding* input = request.add_inputs();
  input->set_name(InputOf(work.kind));
  if (work.kind == Kind::kArray) {
    input->set_array_index(true);
    request.mutable_array()->set_first(work.seed);
    request.mutable_array()->set_last(work.seed + work.elements - 1);
    request.mutable_array()->set_running_max(work.seed % 3);
  } else {
    const std::vector<int32_t> values = ValuesOf(work);
    v1::Tensor* tensor = input->mutable_tensor();
    tensor->set_type(v1::ELEMENT_TYPE_I32);
    tensor->add_shape(values.size());
    tensor->set_data(values.data(), values.size() * sizeof(int32_t));
  }
  request.mutable_retry()->set_attempts_max(work.attempts_max);
  if (!work.after.empty()) {
    v1::JobDependency* after = request.add_after();
    after->set_job_id(work.after);
    after->set_condition(static_cast<v1::JobDependency::Condition>(work.condition));
  }
  return request;
}

}  // namespace hpvm::chaos
