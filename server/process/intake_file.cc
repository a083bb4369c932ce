// SPDX-License-Identifier: Apache-2.0
#include "server/process/intake_file.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "server/process/whole_file.h"

namespace hpvm::server {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kVersion = 1;
constexpr uint64_t kFileBytesMax = 64 << 10;

bool Has(const Json& json, const char* key, Json::value_t type) {
  return json.contains(key) && json[key].type() == type;
}

bool HasTime(const Json& json, const char* key) { return json.contains(key) && json[key].is_number_integer(); }

// Files of releases without device pauses do not have this member.
bool ReadPaused(const Json& json, std::map<std::string, DevicePause>* paused) {
  if (!json.contains("paused")) {
    return true;
  }
  if (!json["paused"].is_object()) {
    return false;
  }
  for (const auto& [device, pause] : json["paused"].items()) {
    if (!pause.is_object() || !Has(pause, "reason", Json::value_t::string) ||
        !Has(pause, "paused_by", Json::value_t::string) || !HasTime(pause, "since_unix_ns")) {
      return false;
    }
    (*paused)[device] = {pause["reason"], pause["paused_by"], pause["since_unix_ns"]};
  }
  return true;
}

}  // namespace

StatusOr<Intake> ReadIntake(const std::string& path, Disk& disk) {
  HPVMD_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadWholeFile(path, kFileBytesMax, disk));
  if (!text.has_value()) {
    return Intake();
  }
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  std::map<std::string, DevicePause> paused;
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion ||
      !Has(json, "closed", Json::value_t::boolean) || !Has(json, "reason", Json::value_t::string) ||
      !Has(json, "changed_by", Json::value_t::string) || !HasTime(json, "changed_unix_ns") ||
      !ReadPaused(json, &paused)) {
    return DataLoss("The file \"" + path +
                    "\" is incomplete, or of another release; remove it, and the server starts work.");
  }
  return Intake{.closed = json["closed"],
                .reason = json["reason"],
                .changed_by = json["changed_by"],
                .changed_unix_ns = json["changed_unix_ns"],
                .paused = std::move(paused)};
}

Status WriteIntake(const std::string& path, const Intake& intake, Disk& disk) {
  Json paused = Json::object();
  for (const auto& [device, pause] : intake.paused) {
    paused[device] = {{"reason", pause.reason}, {"paused_by", pause.paused_by}, {"since_unix_ns", pause.since_unix_ns}};
  }
  const Json json = {{"version", kVersion},
                     {"closed", intake.closed},
                     {"reason", intake.reason},
                     {"changed_by", intake.changed_by},
                     {"changed_unix_ns", intake.changed_unix_ns},
                     {"paused", std::move(paused)}};
  return ReplaceWholeFile(path, json.dump(1, ' ', false, Json::error_handler_t::replace), disk);
}

}  // namespace hpvm::server
