// SPDX-License-Identifier: Apache-2.0
// What every command of hpvmctl shares: the global options, and how commands register.
#ifndef HPVMD_CLIENT_CTL_COMMAND_H_
#define HPVMD_CLIENT_CTL_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "client/ctl/text/exit_code.h"

#include "base/status.h"
#include "hpvm/client.h"

namespace CLI {
class App;
}

namespace hpvm::ctl {

enum class Format : uint8_t { kTable, kWide, kJson, kName };
enum class Progress : uint8_t { kAuto, kPlain, kNone };

struct Globals {
  std::string server;   // Empty: the default socket.
  std::string tenant;   // Empty: whom the server takes for the caller.
  std::string profile;  // Empty: $HPVM_PROFILE, else the file's default.
  // What is empty here comes from the environment, or is not there.
  std::string token_file, ca_file, certificate_file, key_file, server_name;
  Format format = Format::kTable;
  Progress progress = Progress::kAuto;
  double connect_seconds = 5;
  std::string patience = "5m";  // How long an outage of the server may last.

  Status found_place = absl::OkStatus();  // Why FindPlace failed: told when a server is needed.

  StatusOr<std::unique_ptr<Client>> Connect() const;
  // Whether progress lines are wanted on standard error.
  bool ShowsProgress() const;
};

// Each command adds itself and its options to `app`; when chosen it leaves its work in `*action`.
using Action = std::function<ExitCode()>;
struct Commands {
  CLI::App& app;
  Globals& globals;
  Action& action;
};
// What a command does when it is chosen, and no command below it. Its failure is reported; `code` is the exit code of
// work that is done, kOk unless it is set. `work` shares the command's options, which outlive whoever adds it.
void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&, ExitCode* code)> work);
void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&)> work);
// --token-file, --ca, --cert and what belongs to them.
void AddCredentialOptions(CLI::App& app, Globals& globals);
// Fills what no option gave: from the profile that is named, else the environment ($HPVM_SERVER, $HPVM_TENANT), else
// the file's default profile, which is not for a server that was named. `globals->found_place` says how that went.
void FindPlace(Globals* globals);
// Whether a secret stands on the command line; says what is wrong about that.
bool HasSecretOption(int argc, char** argv);
// For that endpoint, with what the environment has. Once: takes secrets out of the environment.
Credentials CredentialsOf(const Globals& globals, std::string_view endpoint);

void AddSubmit(Commands commands);
void AddRun(Commands commands);
void AddCosts(Commands commands);
void AddDevices(Commands commands);
void AddJobs(Commands commands);
void AddRetry(Commands commands);
void AddGraph(Commands commands);
// Commands of `hpvmctl graph` that ask a server.
void AddHeldGraphs(Commands commands, CLI::App& graph);
void AddBuffers(Commands commands);
void AddKernel(Commands commands);
void AddModule(Commands commands);
void AddTenant(Commands commands);
void AddToken(Commands commands);
void AddQuota(Commands commands);
void AddAudit(Commands commands);
void AddTop(Commands commands);
void AddIntake(Commands commands);
void AddDoctor(Commands commands);
void AddCompletion(Commands commands);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_COMMAND_H_
