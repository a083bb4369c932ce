// SPDX-License-Identifier: Apache-2.0
// hpvm-diff: compares random modules on the interpreter, the CPU back end and Node's V8.
//
//   hpvm-diff --seeds 0..499                        a short run; exit status 1 if anything differs
//   hpvm-diff --seeds 0..99999 --jobs 2 --log FILE  a long one, with a line of results appended to FILE
//   hpvm-diff --level x86-64-v2 --shape 4x1x2 ...   for a level, and in tiles of a shape
//   hpvm-diff --replay FOLDER                       the cases found before
//   hpvm-diff --dump SEED --found FOLDER            one module with its launch and outcome, without comparing
//   hpvm-diff --inject shr_s=shr_u --seeds 0..199   exit status 0 if the wrong instruction is noticed and shrunk
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/text/text.h"
#include "tests/diff/campaign.h"
#include "tests/diff/case.h"

namespace hpvm::diff {
namespace {

// A fault that shows in every program can be reproduced with a few nodes besides the prologue and the stores of
// results.
constexpr uint32_t kInjectedNodesMax = 60;

struct Arguments {
  std::string seeds = "0..499", log, replay, found, inject, commit = "unknown", script = HPVMD_DIFF_SCRIPT, level;
  std::vector<std::string> shapes;
  uint32_t jobs = 1, minutes = 0;
  int64_t dump = -1;
  bool no_v8 = false, no_simd = false, no_memory64 = false, no_references = false, no_shrink = false;
};

bool ParseSeeds(const std::string& text, CampaignOptions& options) {
  const size_t dots = text.find("..");
  return dots != std::string::npos && absl::SimpleAtoi(text.substr(0, dots), &options.first) &&
         absl::SimpleAtoi(text.substr(dots + 2), &options.last) && options.first <= options.last;
}

bool ParseFault(const std::string& text, CampaignOptions& options) {
  const size_t equals = text.find('=');
  Fault fault{};
  if (equals == std::string::npos || !ir::OpcodeFromText(text.substr(0, equals), &fault.from) ||
      !ir::OpcodeFromText(text.substr(equals + 1), &fault.to)) {
    return false;
  }
  options.fault = fault;
  return true;
}

// "16x2x4": lanes, columns, rows.
bool ParseShapes(const Arguments& arguments, CpuForm& form) {
  form.level = arguments.level;
  for (const std::string& text : arguments.shapes) {
    const std::vector<std::string> parts = absl::StrSplit(text, 'x');
    pass::GangShape shape;
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &shape.lanes) || !absl::SimpleAtoi(parts[1], &shape.columns) ||
        !absl::SimpleAtoi(parts[2], &shape.rows)) {
      return false;
    }
    form.shapes.push_back(shape);
  }
  return true;
}

int ReplayAll(const std::string& folder, const CpuForm& form) {
  const StatusOr<std::vector<std::string>> paths = ListCases(folder);
  if (!paths.ok()) {
    std::fprintf(stderr, "%s\n", Message(paths.status()).c_str());
    return 2;
  }
  cpu::InitializeLlvm();
  int failed = 0;
  for (const std::string& path : *paths) {
    const StatusOr<Case> item = Load(path);
    const Status status = item.ok() ? Replay(*item, form) : item.status();
    if (!status.ok()) {
      ++failed;
      std::printf("FAILED %s: %s\n", path.c_str(), Message(status).c_str());
    }
  }
  std::printf("%zu passed, %d failed\n", paths->size() - static_cast<size_t>(failed), failed);
  return failed == 0 ? 0 : 1;
}

int Dump(uint64_t seed, const CampaignOptions& options) {
  cpu::InitializeLlvm();
  const Program program = Generate(seed, options.features);
  const CheckResult result = Check(program, {.fault = options.fault, .form = options.form});
  std::printf("seed %" PRIu64 ": %s. %s\n", seed, std::string(Name(result.verdict)).c_str(),
              result.explanation.c_str());
  Case item{"seed " + std::to_string(seed), result.module, LaunchOf(program), {}, program.has_barrier};
  if (result.expected) {
    item.expected = *result.expected;
  }
  const Status written = Write(item, options.found_folder + "/seed-" + std::to_string(seed));
  return written.ok() ? 0 : 2;
}

std::string Summary(const Arguments& arguments, uint64_t first, const CampaignResult& result) {
  const Tally& t = result.tally;
  char text[640];
  std::snprintf(text, sizeof(text),
                "commit %s seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " modules (%" PRIu64 " bytes, %" PRIu64
                " instances), %" PRIu64 " compared with V8, %" PRIu64 " by groups, %" PRIu64 " with vectors, %" PRIu64
                " trapped, %" PRIu64 " too long; %zu differences; %.1f s, %u jobs%s",
                arguments.commit.c_str(), first, result.last, t.modules, t.bytes, t.instances, t.compared_with_v8,
                t.barriers, t.simd, t.trapped, t.too_long, result.findings.size(), result.seconds, arguments.jobs,
                result.had_v8 ? "" : "; without V8");
  return text;
}

void Print(const Finding& finding) {
  std::printf("DIFFERENCE seed %" PRIu64 ": %s. %s\n  %u nodes, shrunk to %u; module of %" PRIu64 " bytes%s%s\n",
              finding.seed, std::string(Name(finding.verdict)).c_str(), finding.explanation.c_str(),
              finding.nodes_before, finding.nodes, finding.module_bytes, finding.path.empty() ? "" : " in ",
              finding.path.c_str());
}

// The comparison alone must find the injected fault, which is then shrunk.
int JudgeInjected(const CampaignResult& result) {
  for (const Finding& finding : result.findings) {
    if (finding.verdict != Verdict::kCpuDiffers) {
      std::printf("An injected fault ended in \"%s\".\n", std::string(Name(finding.verdict)).c_str());
      return 1;
    }
    if (finding.nodes > kInjectedNodesMax) {
      std::printf("Seed %" PRIu64 " was shrunk to %u nodes; the limit is %u.\n", finding.seed, finding.nodes,
                  kInjectedNodesMax);
      return 1;
    }
  }
  std::printf("%s\n", result.findings.empty() ? "The injected fault was not noticed." : "The fault was noticed.");
  return result.findings.empty() ? 1 : 0;
}

int Run(const Arguments& arguments) {
  CampaignOptions options;
  options.jobs = arguments.jobs;
  options.seconds_max = arguments.minutes * 60;
  options.features = {!arguments.no_simd, !arguments.no_memory64, !arguments.no_references};
  options.with_v8 = !arguments.no_v8;
  options.server_script = arguments.script;
  options.found_folder = arguments.found;
  options.shrink_tries = arguments.no_shrink ? 0 : options.shrink_tries;
  if (!ParseSeeds(arguments.seeds, options)) {
    std::fprintf(stderr, "--seeds takes FIRST..LAST.\n");
    return 2;
  }
  if (!ParseShapes(arguments, options.form)) {
    std::fprintf(stderr, "--shape takes LANESxCOLUMNSxROWS.\n");
    return 2;
  }
  if (!arguments.inject.empty()) {
    if (!ParseFault(arguments.inject, options)) {
      std::fprintf(stderr, "--inject takes OPERATION=OPERATION, of the kernel IR.\n");
      return 2;
    }
    options.findings_max = 2;
    options.with_v8 = false;
  }
  if (!arguments.replay.empty()) {
    return ReplayAll(arguments.replay, options.form);
  }
  if (arguments.dump >= 0) {
    return Dump(static_cast<uint64_t>(arguments.dump), options);
  }
  const StatusOr<CampaignResult> result = RunCampaign(options);
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", Message(result.status()).c_str());
    return 2;
  }
  for (const Finding& finding : result->findings) {
    Print(finding);
  }
  if (options.with_v8 && !result->had_v8) {
    std::printf("NOTE: there is no \"node\" on the PATH; V8 was left out.\n");
  }
  const std::string summary = Summary(arguments, options.first, *result);
  std::printf("%s\n", summary.c_str());
  if (!arguments.log.empty()) {
    std::ofstream(arguments.log, std::ios::app) << summary << "\n";
  }
  if (options.fault) {
    return JudgeInjected(*result);
  }
  return result->findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace hpvm::diff

int main(int argc, char** argv) {
  hpvm::diff::Arguments arguments;
  CLI::App app("Random modules on the interpreter, the CPU back end and Node's V8.");
  app.add_option("--seeds", arguments.seeds, "FIRST..LAST, both run");
  app.add_option("--jobs", arguments.jobs, "processes");
  app.add_option("--minutes", arguments.minutes, "end after so many; 0 is when all seeds are done");
  app.add_option("--log", arguments.log, "file that gets a line of results");
  app.add_option("--commit", arguments.commit, "what the log calls the code that runs");
  app.add_option("--found", arguments.found, "folder for what is found");
  app.add_option("--replay", arguments.replay, "folder of cases to run instead");
  app.add_option("--dump", arguments.dump, "a seed to write to --found instead");
  app.add_option("--inject", arguments.inject, "operation to swap for another in the CPU's module");
  app.add_option("--server", arguments.script, "v8_server.js");
  app.add_option("--level", arguments.level, "x86-64-v2, -v3 or -v4 instead of what the host has");
  app.add_option("--shape", arguments.shapes, "LANESxCOLUMNSxROWS: also run in such tiles; may be repeated");
  app.add_flag("--no-v8", arguments.no_v8);
  app.add_flag("--no-simd", arguments.no_simd);
  app.add_flag("--no-memory64", arguments.no_memory64);
  app.add_flag("--no-references", arguments.no_references);
  app.add_flag("--no-shrink", arguments.no_shrink);
  CLI11_PARSE(app, argc, argv);
  return hpvm::diff::Run(arguments);
}
