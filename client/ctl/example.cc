// SPDX-License-Identifier: Apache-2.0
// hpvmctl example: lists the examples that come with the package; copies one of them and runs it.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"

#include "base/edit_distance.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;

constexpr char kShared[] = "gallery.py";  // The module that all drivers import from the folder above theirs.

struct Options {
  std::string name, into = ".";
  bool copy_only = false;
};

fs::path ProgramFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// Returns $HPVM_EXAMPLES, or else the folder where the package installs the examples, or else the one in the source
// tree around a build.
StatusOr<fs::path> ExamplesFolder() {
  std::vector<fs::path> places = {ProgramFolder() / "../../share/hpvm/examples",
                                  ProgramFolder() / "../share/hpvm/examples", ProgramFolder() / "../../../examples"};
  if (const char* named = getenv("HPVM_EXAMPLES"); named != nullptr && *named != '\0') {
    places = {named};
  }
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::is_regular_file(place / kShared, error)) {
      return place.lexically_normal();
    }
  }
  return NotFound("There are no examples in " + places[0].lexically_normal().string() +
                  "; set HPVM_EXAMPLES to their folder.");
}

// Returns the names of the examples that have a driver, sorted.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (fs::is_regular_file(entry.path() / "run.py", error)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the first sentence of the example's README that is neither heading nor picture.
std::string Described(const fs::path& example) {
  std::ifstream readme(example / "README.md");
  std::string text;
  for (std::string line; std::getline(readme, line) && (text.empty() || !line.empty());) {
    if (!line.empty() && line[0] != '#' && line[0] != '!') {
      text += (text.empty() ? "" : " ") + line;
    }
  }
  const size_t end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

Status List(const fs::path& folder) {
  std::vector<std::vector<std::string>> rows = {{"EXAMPLE", "DESCRIPTION"}};
  for (const std::string& name : NamesIn(folder)) {
    rows.push_back({name, Described(folder / name)});
  }
  fputs(Table(rows).c_str(), stdout);
  return absl::OkStatus();
}

Status Copy(const fs::path& from, const fs::path& into, const std::string& name) {
  std::error_code error;
  if (fs::exists(into / name, error)) {
    return MakeStatus(
        absl::StatusCode::kAlreadyExists,
        "\"" + (into / name).string() + "\" already exists, and is left as it is; give another folder with --into.");
  }
  fs::create_directories(into, error);
  if (!error) {
    fs::copy(from / name, into / name, fs::copy_options::recursive, error);
  }
  if (!error && !fs::exists(into / kShared)) {
    fs::copy_file(from / kShared, into / kShared, error);
  }
  return error ? FromErrno(error.value(), "Copying the example to \"" + (into / name).string() + "\"")
               : absl::OkStatus();
}

// Runs the driver with this command's server and Python package, and returns the driver's exit status.
StatusOr<int> RunDriver(const Globals& globals, const fs::path& example) {
  if (!globals.server.empty()) {
    setenv("HPVM_SERVER", globals.server.c_str(), 1);
  }
  std::error_code error;
  if (const fs::path built = ProgramFolder().parent_path() / "python"; fs::is_directory(built / "hpvm", error)) {
    const char* present = getenv("PYTHONPATH");
    setenv("PYTHONPATH", (built.string() + (present == nullptr ? "" : std::string(":") + present)).c_str(), 1);
  }
  std::string words[] = {"python3", "run.py", "--picture", "out/picture.png"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  fs::create_directories(example / "out", error);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, example.c_str());
  pid_t child = -1;
  const int failed = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return FromErrno(failed, "Starting python3, which runs the example's driver,");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Status Example(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(const fs::path folder, ExamplesFolder());
  if (options.name.empty()) {
    return List(folder);
  }
  const std::vector<std::string> names = NamesIn(folder);
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    NearMiss near(options.name);
    std::for_each(names.begin(), names.end(), [&](const std::string& name) { near.Offer(name); });
    return InvalidArgument(
        "There is no example \"" + options.name + "\"; " +
        (near.best().empty() ? "`hpvmctl example` lists them." : "did you mean \"" + std::string(near.best()) + "\"?"));
  }
  const fs::path example = fs::path(options.into) / options.name;
  HPVMD_RETURN_IF_ERROR(Copy(folder, options.into, options.name));
  fputs(Printable("Copied to " + example.string() + "; its README.md says what to look at.\n").c_str(), stderr);
  if (options.copy_only) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const int status, RunDriver(globals, example));
  if (status == 0) {
    fputs(Printable("The picture is " + (example / "out/picture.png").string() + ".\n").c_str(), stderr);
  } else {
    *code = kFailed;
  }
  return absl::OkStatus();
}

}  // namespace

void AddExample(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "example", "List the examples; copy one and run it",
                 "The driver is a program in Python (python3 with numpy and this package's module), which "
                 "draws a picture.\n"
                 "Examples:\n"
                 "  hpvmctl example\n"
                 "  hpvmctl example game-of-life --into play");
  Options& options = SetWork(commands, command, Example);
  AddWord(command, "name", options.name, "The example; without it, they are listed");
  AddWord(command, "--into", options.into,
          "The folder into which the example's folder is copied; default: the current folder");
  command.add_flag("--copy-only", options.copy_only, "Copy the example, and do not run it");
}

}  // namespace hpvm::ctl
