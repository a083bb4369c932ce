// SPDX-License-Identifier: Apache-2.0
#include "server/process/intake_file.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "server/process/whole_file.h"

namespace hpvm::server {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kVersion = 1;
constexpr uint64_t kFileBytesMax = 64 << 10;

}  // namespace

StatusOr<Intake> ReadIntake(const std::string& path, Disk& disk) {
  HPVMD_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadWholeFile(path, kFileBytesMax, disk));
  if (!text.has_value()) {
    return Intake();
  }
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, Json::value_t type) { return json.contains(key) && json[key].type() == type; };
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion ||
      !has("closed", Json::value_t::boolean) || !has("reason", Json::value_t::string) ||
      !has("changed_by", Json::value_t::string) || !json.contains("changed_unix_ns") ||
      !json["changed_unix_ns"].is_number_integer()) {
    return DataLoss("The file \"" + path +
                    "\" is not whole, or of another release; without it the server starts work.");
  }
  return Intake{.closed = json["closed"],
                .reason = json["reason"],
                .changed_by = json["changed_by"],
                .changed_unix_ns = json["changed_unix_ns"]};
}

Status WriteIntake(const std::string& path, const Intake& intake, Disk& disk) {
  const Json json = {{"version", kVersion},
                     {"closed", intake.closed},
                     {"reason", intake.reason},
                     {"changed_by", intake.changed_by},
                     {"changed_unix_ns", intake.changed_unix_ns}};
  return ReplaceWholeFile(path, json.dump(1, ' ', false, Json::error_handler_t::replace), disk);
}

}  // namespace hpvm::server
