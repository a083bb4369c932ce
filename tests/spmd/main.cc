// SPDX-License-Identifier: Apache-2.0
// hpvm-spmd: runs random kernels in the interpreter and in lockstep, and compares.
//
//   hpvm-spmd --seeds 0..199                            a short run; exit status 1 if anything differs
//   hpvm-spmd --seeds 0..999999 --seconds 3600 --level x86-64-v3 --log FILE --keep-going --found FOLDER
//   hpvm-spmd --shape 16x1x1 --seeds 7..7               one kernel in one shape
//   hpvm-spmd --replay FILE...                          kernels found before
//   hpvm-spmd --dump 7                                  one kernel's text, without running it
//   hpvm-spmd --inject shr_s=shr_u --seeds 0..99        exit status 0 if the wrong instruction is noticed
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "compiler/back/llvm/llvm_back.h"
#include "tests/spmd/campaign.h"
#include "tests/spmd/generate.h"

namespace hpvm::spmd {
namespace {

struct Arguments {
  std::string seeds = "0..199", log, found, inject, commit = "unknown";
  std::vector<std::string> levels, shapes, replay;
  uint32_t jobs = 1, seconds = 0;
  int64_t dump = -1;
  bool keeps_going = false, no_shrink = false, checks_races = false;
};

bool ParseSeeds(const std::string& text, CampaignOptions& options) {
  const size_t dots = text.find("..");
  return dots != std::string::npos && absl::SimpleAtoi(text.substr(0, dots), &options.first) &&
         absl::SimpleAtoi(text.substr(dots + 2), &options.last) && options.first <= options.last;
}

// "16x2x4": lanes, columns, rows.
bool ParseShape(const std::string& text, CheckOptions& options) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  pass::GangShape shape;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &shape.lanes) || !absl::SimpleAtoi(parts[1], &shape.columns) ||
      !absl::SimpleAtoi(parts[2], &shape.rows)) {
    return false;
  }
  options.shapes.push_back(shape);
  return true;
}

bool ParseFault(const std::string& text, CheckOptions& options) {
  const size_t equals = text.find('=');
  Fault fault{};
  if (equals == std::string::npos || !ir::OpcodeFromText(text.substr(0, equals), &fault.from) ||
      !ir::OpcodeFromText(text.substr(equals + 1), &fault.to)) {
    return false;
  }
  options.fault = fault;
  return true;
}

int ReplayAll(const std::vector<std::string>& paths, const CheckOptions& options) {
  cpu::InitializeLlvm();
  size_t failed = 0;
  for (const std::string& path : paths) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    const StatusOr<Kernel> kernel = FromText(text.str());
    if (!kernel.ok()) {
      ++failed;
      std::printf("FAILED %s: %s\n", path.c_str(), Message(kernel.status()).c_str());
      continue;
    }
    const CheckResult result = CheckApart(*kernel, options);
    if (result.verdict != Verdict::kSame) {
      ++failed;
      std::printf("FAILED %s: %s. %s\n", path.c_str(), std::string(Name(result.verdict)).c_str(),
                  result.explanation.c_str());
    }
  }
  std::printf("%zu passed, %zu failed\n", paths.size() - failed, failed);
  return failed == 0 ? 0 : 1;
}

std::string Summary(const Arguments& arguments, uint64_t first, const CampaignResult& result) {
  const Tally& t = result.tally;
  std::string levels, shapes;
  for (const std::string& level : arguments.levels) {
    levels += " " + level;
  }
  for (const std::string& shape : arguments.shapes) {
    shapes += " " + shape;
  }
  char text[640];
  std::snprintf(text, sizeof(text),
                "commit %s seeds %" PRIu64 "..%" PRIu64 " levels%s shapes%s: %" PRIu64 " kernels (%" PRIu64
                " instances), %" PRIu64 " images, %" PRIu64 " runs, %" PRIu64 " in lockstep, %" PRIu64
                " unchecked; %" PRIu64 " trapped, %" PRIu64 " refused, %" PRIu64
                " too long; %u findings; %.1f s, %u jobs",
                arguments.commit.c_str(), first, result.last, levels.empty() ? " any" : levels.c_str(),
                shapes.empty() ? " any" : shapes.c_str(), t.kernels, t.instances, t.images, t.runs, t.gang_runs,
                t.unchecked_runs, t.trapped, t.refused, t.too_long, result.findings, result.seconds, arguments.jobs);
  return text;
}

int RunAll(const Arguments& arguments, const CampaignOptions& options) {
  const StatusOr<CampaignResult> result = RunCampaign(options);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", Message(result.status()).c_str());
    return 2;
  }
  const std::string summary = Summary(arguments, options.first, *result);
  std::printf("%s\n", summary.c_str());
  if (!arguments.log.empty()) {
    std::ofstream(arguments.log, std::ios::app) << summary << "\n";
  }
  if (options.check.fault) {
    std::printf("%s\n", result->findings == 0 ? "The injected fault was not noticed." : "The fault was noticed.");
    return result->findings == 0 ? 1 : 0;
  }
  return result->findings == 0 ? 0 : 1;
}

int Run(const Arguments& arguments) {
  CampaignOptions options;
  options.jobs = arguments.jobs;
  options.seconds_max = arguments.seconds;
  options.found_folder = arguments.found;
  options.findings_max = arguments.keeps_going ? 1000 : 1;
  options.shrink_tries = arguments.no_shrink ? 0 : options.shrink_tries;
  options.check.levels = arguments.levels;
  options.check.is_race_checked = arguments.checks_races;
  if (!ParseSeeds(arguments.seeds, options)) {
    std::fprintf(stderr, "--seeds takes FIRST..LAST.\n");
    return 2;
  }
  for (const std::string& shape : arguments.shapes) {
    if (!ParseShape(shape, options.check)) {
      std::fprintf(stderr, "--shape takes LANESxCOLUMNSxROWS.\n");
      return 2;
    }
  }
  if (!arguments.inject.empty() && !ParseFault(arguments.inject, options.check)) {
    std::fprintf(stderr, "--inject takes OPERATION=OPERATION, of the kernel IR.\n");
    return 2;
  }
  if (!arguments.replay.empty()) {
    return ReplayAll(arguments.replay, options.check);
  }
  if (arguments.dump >= 0) {
    std::printf("%s", ToText(Generate(static_cast<uint64_t>(arguments.dump))).c_str());
    return 0;
  }
  return RunAll(arguments, options);
}

}  // namespace
}  // namespace hpvm::spmd

int main(int argc, char** argv) {
  hpvm::spmd::Arguments arguments;
  CLI::App app("Random kernels, interpreted and in lockstep.");
  app.add_option("--seeds", arguments.seeds, "FIRST..LAST, both run");
  app.add_option("--jobs", arguments.jobs, "processes");
  app.add_option("--seconds", arguments.seconds, "end after so many; 0 is when all seeds are done");
  app.add_option("--level", arguments.levels, "x86-64-v2, -v3 or -v4; may be repeated; without, one a kernel");
  app.add_option("--shape", arguments.shapes, "LANESxCOLUMNSxROWS; may be repeated; without, some a kernel");
  app.add_option("--log", arguments.log, "file that gets a line of results");
  app.add_option("--commit", arguments.commit, "what the log calls the code that runs");
  app.add_option("--found", arguments.found, "folder for what is found; without, it is printed");
  app.add_option("--replay", arguments.replay, "kernels to run instead");
  app.add_option("--dump", arguments.dump, "a seed whose kernel is printed instead");
  app.add_option("--inject", arguments.inject, "operation to swap for another in the code's module");
  app.add_flag("--keep-going", arguments.keeps_going, "do not end at the first finding");
  app.add_flag("--races", arguments.checks_races, "also ask the checker for races; one is the generator's fault");
  app.add_flag("--no-shrink", arguments.no_shrink);
  CLI11_PARSE(app, argc, argv);
  return hpvm::spmd::Run(arguments);
}
