// SPDX-License-Identifier: Apache-2.0
// hpvm-wast: runs WebAssembly's specification tests, or others of that form, on one of hpvmd's engines.
//
//   hpvm-wast [--engine interp|cpu] [--verbose] FILE.json...
//
// Exits with 0 when every command of every script held, 1 otherwise, 2 for a wrong command line.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tests/wast/engine.h"
#include "tests/wast/runner.h"
#include "tests/wast/script.h"

namespace hpvm::wast {
namespace {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

struct Arguments {
  std::string engine = "interp";
  bool verbose = false;
  std::vector<std::string> files;
};

StatusOr<std::unique_ptr<Engine>> CreateEngine(const std::string& name) {
  if (name == "cpu") {
    return CreateCpuEngine();
  }
  return CreateInterpreterEngine();
}

// Uses one store per script. An error that prevents a script from running counts as one failure.
Totals RunFile(const Arguments& arguments, Engine& engine, const std::string& file) {
  const auto fail = [&](const Status& status) {
    std::printf("%s: %s\n", file.c_str(), Message(status).c_str());
    return Totals{.failed = 1};
  };
  const StatusOr<Script> script = ReadScript(file);
  if (!script.ok()) {
    return fail(script.status());
  }
  StatusOr<std::unique_ptr<Runner>> runner = Runner::Create(engine, arguments.verbose);
  return runner.ok() ? (*runner)->Run(*script) : fail(runner.status());
}

int Run(const Arguments& arguments) {
  StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(arguments.engine);
  if (!engine.ok()) {
    std::fprintf(stderr, "hpvm-wast: %s\n", Message(engine.status()).c_str());
    return kExitFailed;
  }
  Totals all;
  for (const std::string& file : arguments.files) {
    const Totals one = RunFile(arguments, **engine, file);
    if (arguments.files.size() > 1) {
      std::printf("%s: %lu passed, %lu failed\n", file.c_str(), one.passed, one.failed);
    }
    all.passed += one.passed;
    all.failed += one.failed;
    all.skipped += one.skipped;
    std::fflush(stdout);
  }
  if (all.skipped != 0) {
    std::printf("%lu skipped (text format)\n", all.skipped);
  }
  std::printf("%lu passed, %lu failed\n", all.passed, all.failed);
  return all.failed == 0 ? kExitOk : kExitFailed;
}

int Main(int argc, char** argv) {
  CLI::App app("Runs scripts of WebAssembly's specification tests that wast2json has converted.", "hpvm-wast");
  Arguments arguments;
  app.add_option("--engine", arguments.engine, "What runs the modules")
      ->check(CLI::IsMember({"interp", "cpu"}))
      ->capture_default_str();
  app.add_flag("--verbose", arguments.verbose, "Print every command, and why modules were refused");
  app.add_option("file", arguments.files, "Scripts, FILE.json")->required()->check(CLI::ExistingFile);
  if (argc == 1) {
    std::fputs("usage: hpvm-wast [--engine interp|cpu] [--verbose] FILE.json...\n", stderr);
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports errors by exceptions, which end here.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return Run(arguments);
}

}  // namespace
}  // namespace hpvm::wast

int main(int argc, char** argv) { return hpvm::wast::Main(argc, argv); }
