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
  globals.patience = "1ms";  // Asked once.
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
      rows.push_back({"server", "none answers at " + endpoint});
      said = "hpvmctl: the server's version is not known: " + why.substr(0, why.find('\n')) + "\n";
    } else {
      json["server"] = {{"version", info->version()}, {"endpoint", endpoint}};
      rows.push_back({"server", info->version() + " at " + endpoint});
      if (info->version() != version) {
        said = "hpvmctl: client and server differ; what one of them does not know, it refuses.\n";
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
  CLI::App& command = AddCommand(commands.app, "version", "The versions of this program and of the server",
                                 "A server that does not answer within 2 s is said to, and the exit code is 0.\n"
                                 "Examples:\n  hpvmctl version\n  hpvmctl version --client -o name");
  command.add_flag("--client", SetWork(commands, command, Version).client, "Only this program's; no server is asked");
}

}  // namespace hpvm::ctl
