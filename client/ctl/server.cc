// SPDX-License-Identifier: Apache-2.0
// hpvmctl server config.

#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"

#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {};

// Returns facts about the configuration, as comments above its text.
std::string ConfigText(const v1::GetConfigResponse& config) {
  std::string text = "# sha256 " + config.sha256() + "\n# in force since " + TimeText(config.loaded_unix_ns()) + "\n" +
                     (config.file().empty() ? "# not read from a file\n" : "# read from " + config.file() + "\n");
  for (const std::string& key : config.awaiting_restart()) {
    text += "# " + key + " has another value in the file, which takes effect at the next restart\n";
  }
  return Printable(text + config.toml());
}

Status Config(const Globals& globals, const Options&) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::GetConfigResponse config, Admin(*client).GetConfig());
  PrintOne(config, globals.format, config.sha256(), [&] { return ConfigText(config); });
  return absl::OkStatus();
}

}  // namespace

void AddServer(Commands commands) {
  CLI::App* server = commands.app.add_subcommand("server", "Show the state of the server itself; for administrators");
  server->require_subcommand(1);
  SetWork(commands,
          AddCommand(
              *server, "config", "Show the configuration in force",
              "Every key with its value and where the value comes from. `-o name` prints the hash, which the metric\n"
              "hpvm_config_info and the log have, too.\n"
              "Examples:\n"
              "  hpvmctl server config\n"
              "  hpvmctl server config -o name"),
          Config);
}

}  // namespace hpvm::ctl
