// SPDX-License-Identifier: Apache-2.0
// hpvmctl version.
#include <stdio.h>

#include <algorithm>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

struct Options {
  bool client = false;
};

constexpr double kServerSeconds = 2;

StatusOr<v1::ServerInfoResponse> AskServer(Globals globals) {
  globals.connect_seconds = std::min(globals.connect_seconds, kServerSeconds);
  globals.patience = "1ms";  // Makes the call without retries.
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  CallOptions call;
  call.timeout = std::chrono::seconds(static_cast<int>(kServerSeconds));
  return client->ServerInfo(call);
}

Status Version(const Globals& globals, const Options& options) {
  const std::string version = HPVMD_VERSION;
  nlohmann::ordered_json json = {{"client", {{"version", version}}}};
  std::vector<std::vector<std::string>> rows = {{"client", version}};
  std::string said;
  if (!options.client) {
    const std::string endpoint = globals.server.empty() ? DefaultEndpoint() : globals.server;
    const StatusOr<v1::ServerInfoResponse> info = AskServer(globals);
    json["server"] = nullptr;
    if (!info.ok()) {
      const std::string why = Message(info.status());
      rows.push_back({"server", "no server answers at " + endpoint});
      said = "hpvmctl: the server's version is not known: " + why.substr(0, why.find('\n')) + "\n";
    } else {
      json["server"] = {{"version", info->version()}, {"endpoint", endpoint}};
      rows.push_back({"server", info->version() + " at " + endpoint});
      if (info->version() != version) {
        said = "hpvmctl: client and server have different versions; each refuses what it does not know.\n";
      }
    }
  }
  if (globals.format == Format::kJson) {
    PrintData(json, globals.format);
  } else {
    fputs((globals.format == Format::kName ? version + "\n" : Table(rows)).c_str(), stdout);
  }
  fputs(Printable(said).c_str(), stderr);
  return absl::OkStatus();
}

}  // namespace

void AddVersion(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "version", "Show the versions of this program and of the server",
                 "If the server does not answer within 2 s, the command says so, and the exit code is still 0.\n"
                 "Examples:\n  hpvmctl version\n  hpvmctl version --client -o name");
  command.add_flag("--client", SetWork(commands, command, Version).client,
                   "Show only this program's version, without asking a server");
}

}  // namespace hpvm::ctl
