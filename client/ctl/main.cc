// SPDX-License-Identifier: Apache-2.0
// hpvmctl: submits graphs to hpvmd, or runs them locally without it.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <sstream>
#include <utility>

#include "client/ctl/options.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/text.h"
#include "client/status/status.h"

#include "graph/diagnostic_sink.h"

namespace hpvm::ctl {

std::string DefaultEndpoint() {
  constexpr char kSocket[] = "/run/hpvmd/hpvmd.sock";
  return access(kSocket, F_OK) == 0 ? std::string("unix:") + kSocket : "127.0.0.1:50061";
}

namespace {

void SayUnanswered(const Status& status) {
  // A failure with details comes from the server itself.
  if (DetailOf(status).has_value()) {
    fprintf(stderr, "hpvmctl: the server cannot answer now; trying again. It says: %s\n",
            Printable(Message(status)).c_str());
  } else {
    fprintf(stderr, "hpvmctl: the server does not answer; trying again\n");
  }
}

}  // namespace

StatusOr<std::unique_ptr<Client>> Globals::Connect() const {
  HPVMD_RETURN_IF_ERROR(found_place);
  ClientOptions options;
  options.endpoint = server.empty() ? DefaultEndpoint() : server;
  options.tenant = tenant;
  options.credentials = CredentialsOf(*this, options.endpoint);
  options.connect_timeout = Duration(static_cast<int64_t>(connect_seconds * 1e9));
  HPVMD_ASSIGN_OR_RETURN(options.patience, While(ParseDuration(patience), "reading --patience"));
  options.on_unanswered = SayUnanswered;
  options.prepare_again = false;  // No command runs a graph later than right after preparing it.
  StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (client.status().code() == absl::StatusCode::kUnavailable) {
    return While(client.status(), "connecting (start a server with `hpvmd --dev`, or name one with --server)");
  }
  return client;
}

void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&, ExitCode* code)> work) {
  command.callback([work = std::move(work), &globals = commands.globals, &action = commands.action] {
    if (!action) {  // CLI11 calls the innermost command's callback first.
      action = [work, &globals] {
        ExitCode code = kOk;
        const Status status = work(globals, &code);
        return status.ok() ? code : Report(status);
      };
    }
  });
}

void SetWork(Commands commands, CLI::App& command, std::function<Status(const Globals&)> work) {
  SetWork(commands, command, [work = std::move(work)](const Globals& globals, ExitCode*) { return work(globals); });
}

bool Globals::ShowsProgress() const {
  return progress == Progress::kPlain || (progress == Progress::kAuto && isatty(STDERR_FILENO) == 1);
}

namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --output C=c.npy\n"
    "  hpvmctl run --local matmul.json --input A=a.npy --input B=b.npy --output C=c.npy\n"
    "  hpvmctl submit --detach sweep.json --array 0-99 --input seed=@index --idempotency-key sweep-1\n"
    "  hpvmctl list --state live\n"
    "  hpvmctl describe job-0193…\n"
    "  hpvmctl kernel explain matmul.wasm matmul\n"
    "  hpvmctl whoami; hpvmctl quota; hpvmctl usage --days 7\n"
    "  hpvmctl graph show --dot matmul.json | dot -Tsvg -o matmul.svg\n"
    "\n"
    "Exit codes: 0 done, 1 the job failed, 2 usage or wrong input, 3 no device can run a node, 4 not allowed,\n"
    "5 cancelled, 6 deadline passed, 7 no server answers, 124 a wait's --timeout passed, 130 interrupted.";

// Returns "tenant" for `hpvmctl tenant craete`.
const CLI::App& InnermostCommand(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : InnermostCommand(*chosen.front());
}

// For a misspelt word CLI11 only reports that something is missing or was not expected.
void SayWhatWasMeant(const CLI::App& app) {
  std::vector<std::string> words = app.remaining(true);
  // An option's value may precede the misspelt word.
  std::stable_partition(words.begin(), words.end(), [](const std::string& word) { return word.starts_with('-'); });
  // A secret on the command line is not repeated.
  if (words.empty() || words.front().starts_with("hpvm_")) {
    return;
  }
  const std::string word = words.front().substr(0, words.front().find('='));
  const bool is_option = word.starts_with('-');
  graph::NearMiss near_miss(word);
  for (const CLI::App* command : {&app, &InnermostCommand(app)}) {
    for (const CLI::App* one : command->get_subcommands([](const CLI::App*) { return true; })) {
      near_miss.Offer(one->get_name());
    }
    for (const CLI::Option* option : command->get_options([](const CLI::Option*) { return true; })) {
      for (const std::string& name : option->get_lnames()) {
        near_miss.Offer("--" + name);
      }
    }
  }
  if (near_miss.best().empty() && (is_option || !InnermostCommand(app).get_require_subcommand_min())) {
    return;  // CLI11's message is complete.
  }
  fprintf(stderr, "hpvmctl: \"%s\" is not %s%s\n", Printable(word).c_str(), is_option ? "an option" : "a command",
          near_miss.Ending().c_str());
}

// CLI11 converts single words by itself; a format has parts.
void AddFormat(CLI::App& app, Format& format) {
  const auto parse = [&format](const std::string& word) {
    StatusOr<Format> parsed = ParseFormat(word);
    if (!parsed.ok()) {
      throw CLI::ValidationError("--format", Message(parsed.status()));
    }
    format = *std::move(parsed);
  };
  app.add_option_function<std::string>("-o,--format", parse,
                                       "table, wide (more columns), json, jsonl (one object per line), yaml, name (ids "
                                       "alone), or custom-columns=NAME:PATH,... of the JSON's objects")
      ->option_text(FormatNames());
}

int Main(int argc, char** argv) {
  SetTerminal(FindTerminal(Colours::kAuto));
  if (HasSecretOption(argc, argv)) {
    return kUsage;
  }
  setenv("GRPC_VERBOSITY", "NONE", 0);  // The relevant parts of gRPC's log are in errors.
  CLI::App app("Submits dataflow graphs of portable kernels to hpvmd.", "hpvmctl");
  Globals globals;
  Action action;
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", "hpvmctl " HPVMD_VERSION);
  app.add_option("-s,--server", globals.server,
                 "unix:/path, host:port or https://host:port; default: /run/hpvmd/hpvmd.sock if that exists, else "
                 "127.0.0.1:50061 (or $HPVM_SERVER)");
  app.add_option("--tenant", globals.tenant,
                 "Tenant to act for (or $HPVM_TENANT): for administrators, and for servers that take the caller's word "
                 "(hpvmd --dev)");
  app.add_option("--profile", globals.profile,
                 "Name of a server with credentials in ~/.config/hpvm/profiles.toml (or $HPVM_PROFILE)");
  AddCredentialOptions(app, globals);
  AddFormat(app, globals.format);
  AddChoice<Colours>(app, "--color", globals.colours,
                     {{"auto", Colours::kAuto}, {"always", Colours::kAlways}, {"never", Colours::kNever}},
                     "Colour of states and errors: auto (a terminal without $NO_COLOR), always or never");
  AddChoice<Progress>(app, "--progress", globals.progress,
                      {{"auto", Progress::kAuto}, {"plain", Progress::kPlain}, {"none", Progress::kNone}},
                      "Progress on standard error: auto (a terminal only), plain or none");
  app.add_option("--connect-timeout", globals.connect_seconds, "Seconds to wait for the server")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--patience", globals.patience, "How long to try again when the server stops answering: 30s, 5m, 1h")
      ->capture_default_str();
  app.fallthrough();  // Allows global options after the command, where people type them.
  Commands commands{app, globals, action};
  for (const auto add : {AddSubmit,  AddRun,    AddDevices, AddCosts,   AddJobs,    AddDescribe,  AddApply,  AddRetry,
                         AddBundle,  AddReplay, AddGraph,   AddKernel,  AddModule,  AddBuffers,   AddQuota,  AddUsage,
                         AddTenant,  AddToken,  AddAudit,   AddServer,  AddTop,     AddMemory,    AddIntake, AddDevice,
                         AddCluster, AddDoctor, AddProfile, AddVersion, AddExample, AddCompletion}) {
    add(commands);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 reports errors by exceptions, which end here.
    if (error.get_name() == "RequiredError" || error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      SayWhatWasMeant(app);
    }
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    fputs(Shown(out.str()).c_str(), stdout);
    fputs(Shown(err.str()).c_str(), stderr);
    return code == 0 ? kOk : kUsage;
  }
  SetTerminal(FindTerminal(globals.colours));
  FindPlace(&globals);
  try {
    return action ? action() : kUsage;
  } catch (const std::bad_alloc&) {
    // A tensor file may be larger than this machine's memory.
    return Report(ResourceExhausted("There is not enough memory on this machine for what the command reads."));
  }
}

}  // namespace
}  // namespace hpvm::ctl

int main(int argc, char** argv) { return hpvm::ctl::Main(argc, argv); }
