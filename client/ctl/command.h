// SPDX-License-Identifier: Apache-2.0
// The global options that every command of hpvmctl shares, and the registration of commands.
#ifndef HPVMD_CLIENT_CTL_COMMAND_H_
#define HPVMD_CLIENT_CTL_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "client/ctl/text/exit_code.h"
#include "client/ctl/text/format.h"
#include "client/ctl/text/terminal.h"

#include "base/status.h"
#include "hpvm/client.h"

namespace CLI {
class App;
}

namespace hpvm::ctl {

enum class Progress : uint8_t { kAuto, kPlain, kNone };

struct Globals {
  std::string server;   // The default socket when empty.
  std::string tenant;   // The tenant that the server derives from the credentials when empty.
  std::string profile;  // When empty: $HPVM_PROFILE, else the file's default.
  // Empty fields are taken from the environment, or are not set.
  std::string token_file, ca_file, certificate_file, key_file, server_name;
  Format format;
  Colours colours = Colours::kAuto;
  Progress progress = Progress::kAuto;
  double connect_seconds = 5;
  std::string patience = "5m";  // Longest outage of the server to wait for.

  Status found_place = absl::OkStatus();  // Why FindPlace failed; reported when a server is needed.

  StatusOr<std::unique_ptr<Client>> Connect() const;
  // Returns true when progress lines are wanted on standard error.
  bool ShowsProgress() const;
};

// Each command adds itself and its options to `app`; the chosen command stores its work in `*action`.
using Action = std::function<ExitCode()>;
struct Commands {
  CLI::App& app;
  Globals& globals;
  Action& action;
};
// Sets the work of a command, done when it is chosen without a subcommand. A failure of `work` is reported; `code` is
// the exit code of completed work, kOk unless it is set. `work` shares the command's options, which outlive the
// function that adds it.
void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&, ExitCode* code)> work);
void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&)> work);
// Adds --token-file, --ca, --cert and related options.
void AddCredentialOptions(CLI::App& app, Globals& globals);
// Returns the socket of a server that the system runs, else the address where `hpvmd --dev` listens.
std::string DefaultEndpoint();
// Fills the fields that no option gave: from the named profile, else the environment ($HPVM_SERVER, $HPVM_TENANT),
// else the file's default profile, which does not apply to a server named explicitly. Stores the result in
// `globals->found_place`.
void FindPlace(Globals* globals);
// Returns true when a secret is on the command line, and prints why that is wrong.
bool HasSecretOption(int argc, char** argv);
// Returns the credentials for the endpoint, including those of the environment. Called once: removes secrets from the
// environment.
Credentials CredentialsOf(const Globals& globals, std::string_view endpoint);

void AddSubmit(Commands commands);
void AddRun(Commands commands);
void AddCosts(Commands commands);
void AddDevices(Commands commands);
void AddJobs(Commands commands);
void AddDescribe(Commands commands);
void AddApply(Commands commands);
void AddBundle(Commands commands);
void AddReplay(Commands commands);
void AddProfile(Commands commands);
void AddVersion(Commands commands);
void AddExample(Commands commands);
void AddRetry(Commands commands);
void AddGraph(Commands commands);
// Adds the commands of `hpvmctl graph` that ask a server.
void AddHeldGraphs(Commands commands, CLI::App& graph);
void AddGraphInit(Commands commands, CLI::App& graph);
void AddHeldModules(Commands commands, CLI::App& module);
void AddBuffers(Commands commands);
void AddKernel(Commands commands);
void AddModule(Commands commands);
void AddTenant(Commands commands);
void AddToken(Commands commands);
void AddQuota(Commands commands);
void AddUsage(Commands commands);
void AddServer(Commands commands);
void AddAudit(Commands commands);
void AddTop(Commands commands);
void AddMemory(Commands commands);
void AddIntake(Commands commands);
void AddDevice(Commands commands);
void AddCluster(Commands commands);
void AddDoctor(Commands commands);
void AddCompletion(Commands commands);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_COMMAND_H_
