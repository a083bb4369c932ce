// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include <nlohmann/json.hpp>

#include "tests/diff/check.h"

namespace hpvm::diff {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTypes[] = {"i32", "i64", "f32", "f64"};

std::string Hex(const std::vector<uint8_t>& bytes) {
  const std::string text = absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return text;
}

std::vector<uint8_t> FromHex(const std::string& text) {
  const std::string bytes = absl::HexStringToBytes(text);
  return {bytes.begin(), bytes.end()};
}

Json ToJson(const Param& param) {
  if (param.is_buffer) {
    return {{"port", param.is_writable ? "inout" : "in"}, {"bytes", Hex(param.bytes)}};
  }
  // Bits as text, because JSON's numbers do not hold 64 of them.
  return {{"scalar", kTypes[static_cast<size_t>(param.type)]}, {"bits", std::to_string(param.bits)}};
}

Param ParamOf(const Json& json) {
  Param param;
  param.is_buffer = json.contains("port");
  if (param.is_buffer) {
    param.is_writable = json.at("port") == "inout";
    param.bytes = FromHex(json.at("bytes").get<std::string>());
    return param;
  }
  const auto* type = std::find(std::begin(kTypes), std::end(kTypes), json.at("scalar").get<std::string>());
  param.type = static_cast<ValueType>(type - std::begin(kTypes));
  param.bits = std::stoull(json.at("bits").get<std::string>());
  return param;
}

Case CaseOf(const Json& json) {
  Case item;
  item.note = json.at("note").get<std::string>();
  item.launch.extent = json.at("extent").get<std::array<uint32_t, 3>>();
  item.launch.group = json.at("group").get<std::array<uint32_t, 3>>();
  for (const Json& param : json.at("params")) {
    item.launch.params.push_back(ParamOf(param));
  }
  const Json& expected = json.at("expected");
  item.expected.trap.code = static_cast<ir::TrapCode>(expected.at("trap").get<uint32_t>());
  item.expected.trap.instance = expected.at("instance").get<std::array<uint64_t, 3>>();
  for (const Json& buffer : expected.at("buffers")) {
    item.expected.buffers.push_back(FromHex(buffer.get<std::string>()));
  }
  item.only_whether = expected.at("only_whether").get<bool>();
  return item;
}

}  // namespace

Status Write(const Case& item, const std::string& path) {
  Json json;
  json["note"] = item.note;
  json["extent"] = item.launch.extent;
  json["group"] = item.launch.group;
  json["params"] = Json::array();
  for (const Param& param : item.launch.params) {
    json["params"].push_back(ToJson(param));
  }
  Json& expected = json["expected"];
  expected["trap"] = static_cast<uint32_t>(item.expected.trap.code);
  expected["instance"] = item.expected.trap.instance;
  expected["only_whether"] = item.only_whether;
  expected["buffers"] = Json::array();
  for (const std::vector<uint8_t>& buffer : item.expected.buffers) {
    expected["buffers"].push_back(Hex(buffer));
  }
  std::ofstream text(path + ".json");
  text << json.dump(2) << "\n";
  std::ofstream module(path + ".wasm", std::ios::binary);
  module.write(reinterpret_cast<const char*>(item.module.data()), static_cast<std::streamsize>(item.module.size()));
  text.flush();
  module.flush();
  return text && module ? absl::OkStatus() : Unavailable("Writing \"" + path + "\" failed.");
}

StatusOr<Case> Load(const std::string& path) {
  std::ifstream text(path + ".json");
  std::ifstream module(path + ".wasm", std::ios::binary);
  if (!text || !module) {
    return NotFound("\"" + path + "\" needs both a .json and a .wasm file.");
  }
  try {
    Case item = CaseOf(Json::parse(text));
    item.module.assign(std::istreambuf_iterator<char>(module), {});
    return item;
  } catch (const std::exception& error) {  // Exceptions of the JSON library end here.
    return InvalidArgument("\"" + path + ".json\" is no case: " + error.what());
  }
}

StatusOr<std::vector<std::string>> ListCases(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") {
      paths.push_back((entry.path().parent_path() / entry.path().stem()).string());
    }
  }
  if (error) {
    return NotFound("The folder \"" + folder + "\" cannot be listed: " + error.message() + ".");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status Replay(const Case& item, const CpuForm& form) {
  HPVMD_ASSIGN_OR_RETURN(const ir::Module module, Read(item.module, item.launch));
  constexpr uint64_t kStepsMax = 10'000'000;
  HPVMD_ASSIGN_OR_RETURN(const Outcome interpreted, Interpret(module, item.launch, kStepsMax));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<Outcome> cpu, RunOnCpu(module, item.launch, form, std::nullopt));
  const std::string between = CompareEach(interpreted, cpu, item.only_whether).second;
  if (!between.empty()) {
    return Internal("Interpreter and CPU differ: " + between);
  }
  Outcome plain = interpreted;
  plain.trap.function = plain.trap.source = 0;
  const std::string against = Compare(item.expected, plain, item.only_whether);
  return against.empty() ? absl::OkStatus() : Internal("Expected and got differ: " + against);
}

}  // namespace hpvm::diff
