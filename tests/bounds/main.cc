// SPDX-License-Identifier: Apache-2.0
// hpvm-prove: makes random kernels and launches, and searches for counterexamples to the prover's claims about their
// accesses.
//
//   hpvm-prove --seeds 0..999                              a short run; exit status 1 if a claim was refuted
//   hpvm-prove --seeds 0..99999999 --launches 1000000 --log FILE    until so many launches were proven
//   hpvm-prove --dump 7                                    one kernel's text
//   hpvm-prove --inject hi-1 --seeds 0..999                exit status 0 if claims that are too narrow are noticed
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"

#include "compiler/ir/bounds.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/pipeline.h"
#include "compiler/pass/testing/random_kernel.h"
#include "tests/bounds/refute.h"
#include "tests/spmd/generate.h"

namespace hpvm::bounds {
namespace {

constexpr uint32_t kLaunches = 12;   // Per kernel.
constexpr uint32_t kInstances = 14;  // Per launch.

struct Arguments {
  std::string seeds = "0..999", log, commit = "unknown", inject;
  uint64_t launches = ~uint64_t{0};
  uint32_t seconds = 0;
  int64_t dump = -1;
  uint64_t first = 0, last = 0;
};

struct Tally {
  uint64_t kernels = 0, launches = 0, proven = 0, proven_with_loops = 0, proven_by_words = 0, accesses = 0, refuted = 0;
  uint64_t last_seed = 0;
  double seconds = 0;
};

// Returns small numbers and numbers near powers of two.
uint64_t AnyNumber(std::mt19937_64& random, int bits_max) {
  const uint64_t power = uint64_t{1} << (random() % static_cast<uint64_t>(bits_max));
  return random() % 3 != 0 ? random() % 9 : power + random() % 3 - 1;
}

// Gives most read-only buffers a known range of words.
void AddWords(std::mt19937_64& random, const ir::Module& module, Situation* situation) {
  for (const ir::KernelParam& param : module.params) {
    Words& words = situation->words.emplace_back();
    words.is_known = param.is_buffer && !param.is_writable && random() % 4 != 0;
    const int bits = random() % 4 == 0 ? 31 : 6;
    const auto any = [&] { return static_cast<int32_t>(AnyNumber(random, bits)) * (random() % 6 == 0 ? -1 : 1); };
    const int32_t a = any(), b = any();
    words.lo = std::min(a, b);
    words.hi = std::max(a, b);
  }
}

Situation AnySituation(std::mt19937_64& random, const ir::Module& module) {
  Situation situation;
  for (int d = 0; d < 3; ++d) {
    situation.extent[d] = std::max<uint64_t>(random() % 2 != 0 ? 1 + random() % 8 : AnyNumber(random, 40), 1);
    situation.group[d] = random() % 2 != 0 ? 1 : 1 + random() % 9;
  }
  for (const ir::KernelParam& param : module.params) {
    const bool is_large = random() % 4 == 0;
    situation.params.push_back(param.is_buffer     ? (is_large ? AnyNumber(random, 34) : 4 * (1 + random() % 64))
                               : random() % 6 == 0 ? uint64_t{0} - AnyNumber(random, 32)
                                                   : AnyNumber(random, param.type == ir::Type::kI32 ? 32 : 64));
  }
  AddWords(random, module, &situation);
  return situation;
}

ir::BoundsFacts FactsOf(const ir::Module& module, const Situation& situation) {
  ir::BoundsFacts facts;
  facts.extent = situation.extent;
  facts.group = situation.group;
  for (size_t i = 0; i < module.params.size(); ++i) {
    const ir::KernelParam& param = module.params[i];
    facts.params.push_back(
        {param.is_buffer, param.is_writable, situation.params[i], static_cast<uint8_t>(8 * ir::Bytes(param.type))});
    if (situation.words[i].is_known) {
      facts.params.back().words = {situation.words[i].lo, situation.words[i].hi};
    }
  }
  return facts;
}

std::vector<Claim> ClaimsOf(const ir::BoundsProgram& program, const ir::BoundsFacts& facts, bool is_narrowed) {
  std::vector<ir::BoundsAccess> accesses = program.accesses;
  accesses.insert(accesses.end(), program.by_words.begin(), program.by_words.end());
  const auto end = [](const ir::Exact& value, int added) {
    return value ? std::optional<__int128>(*value + added) : std::nullopt;
  };
  std::vector<Claim> claims;
  const std::vector<ir::BoundsClaim> found = ir::ClaimBounds(program, accesses, facts);
  for (size_t i = 0; i < found.size(); ++i) {
    Claim claim;
    claim.op = accesses[i].op;
    claim.is_never = found[i].is_never;
    claim.is_inside = found[i].fits;
    claim.lo = end(found[i].offset.lo(), 0);
    claim.hi = end(found[i].offset.hi(), is_narrowed ? -1 : 0);
    claims.push_back(claim);
  }
  return claims;
}

std::string Describe(const Situation& situation) {
  std::string text = "extent";
  for (uint64_t extent : situation.extent) {
    text += " " + std::to_string(extent);
  }
  text += ", group";
  for (uint64_t group : situation.group) {
    text += " " + std::to_string(group);
  }
  text += ", parameters";
  for (uint64_t param : situation.params) {
    text += " " + std::to_string(param);
  }
  for (const Words& words : situation.words) {
    text += words.is_known ? ", words " + std::to_string(words.lo) + " to " + std::to_string(words.hi) : ", no words";
  }
  return text;
}

// A kernel, and launches that it was made for.
struct Subject {
  ir::Module module;
  std::vector<Situation> situations{};
};

// Each fourth kernel is one of hpvm-spmd's after the passes: blocks, tables, calls, group memory, addresses of 64
// bits. Another fourth only reads its buffer, so that offsets may depend on its contents.
Subject AnySubject(uint64_t seed) {
  if (seed % 4 != 3) {
    pass::testing::KernelGenerator generator(static_cast<uint32_t>(seed));
    Subject subject{pass::testing::BoundsKernel(generator.Body(), seed % 2 != 0)};
    subject.module.params[0].is_writable = seed % 4 != 2;
    return subject;
  }
  spmd::Kernel kernel = spmd::Generate(seed);
  HPVMD_CHECK(pass::RunCpuPipeline(kernel.module, {}).ok());
  Situation situation{kernel.extent, kernel.group, {}};
  for (size_t i = 0; i < kernel.bindings.size(); ++i) {
    const bool is_buffer = kernel.module.params[i].is_buffer;
    situation.params.push_back(is_buffer ? kernel.bindings[i].bytes : kernel.bindings[i].scalar);
  }
  std::mt19937_64 random(seed);
  AddWords(random, kernel.module, &situation);
  return {std::move(kernel.module), {std::move(situation)}};
}

// Tests one kernel; returns false when a claim was refuted.
bool TryKernel(uint64_t seed, const Arguments& arguments, Tally* tally) {
  const Subject subject = AnySubject(seed);
  const ir::Module& module = subject.module;
  const ir::BoundsProgram program = pass::FindBounds(module);
  ++tally->kernels;
  if (program.accesses.empty() && program.by_words.empty()) {
    return true;
  }
  std::mt19937_64 random(seed);
  Refuter refuter(module, seed);
  for (uint32_t i = 0; i < kLaunches; ++i) {
    const Situation situation = i < subject.situations.size() ? subject.situations[i] : AnySituation(random, module);
    const ir::BoundsFacts facts = FactsOf(module, situation);
    const bool is_proven = ir::ProveBounds(program, facts);
    ++tally->launches;
    tally->proven += is_proven ? 1 : 0;
    const std::vector<Claim> claims = ClaimsOf(program, facts, !arguments.inject.empty());
    tally->proven_by_words += std::count_if(claims.begin() + static_cast<ptrdiff_t>(program.accesses.size()),
                                            claims.end(), [](const Claim& claim) { return claim.is_inside; });
    tally->proven_with_loops += is_proven && !program.loops.empty() ? 1 : 0;
    if (const std::optional<std::string> refuted = refuter.Refute(situation, claims, kInstances)) {
      ++tally->refuted;
      if (arguments.inject.empty()) {
        std::printf("REFUTED seed %" PRIu64 " launch %u (%s%s): %s\n%s\n", seed, i, is_proven ? "proven, " : "",
                    Describe(situation).c_str(), refuted->c_str(), ir::Print(module).c_str());
      }
      return false;
    }
  }
  tally->accesses += refuter.accesses();
  return true;
}

Tally TryAll(const Arguments& arguments) {
  Tally tally;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = arguments.first; seed <= arguments.last && tally.proven < arguments.launches; ++seed) {
    const bool goes_on = TryKernel(seed, arguments, &tally);
    tally.last_seed = seed;
    tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!goes_on || (arguments.seconds != 0 && tally.seconds > arguments.seconds)) {
      break;
    }
  }
  return tally;
}

std::string Summary(const Arguments& arguments, const Tally& tally) {
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  char text[512];
  std::snprintf(text, sizeof(text),
                "commit %s seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " kernels, %" PRIu64 " launches, %" PRIu64
                " proven (%" PRIu64 " of kernels with loops), %" PRIu64 " accesses proven by words, %" PRIu64
                " compared; %" PRIu64 " claims refuted; %.1f s, %.0f proven launches a second",
                arguments.commit.c_str(), arguments.first, tally.last_seed, tally.kernels, tally.launches, tally.proven,
                tally.proven_with_loops, tally.proven_by_words, tally.accesses, tally.refuted, tally.seconds,
                static_cast<double>(tally.proven) / std::max(tally.seconds, 1e-9));
  return text;
}

int Run(Arguments& arguments) {
  if (arguments.dump >= 0) {
    std::printf("%s", ir::Print(AnySubject(static_cast<uint64_t>(arguments.dump)).module).c_str());
    return 0;
  }
  const size_t dots = arguments.seeds.find("..");
  if (dots == std::string::npos || !absl::SimpleAtoi(arguments.seeds.substr(0, dots), &arguments.first) ||
      !absl::SimpleAtoi(arguments.seeds.substr(dots + 2), &arguments.last) || arguments.first > arguments.last) {
    std::fprintf(stderr, "\"%s\" is not a range of seeds such as 0..999.\n", arguments.seeds.c_str());
    return 2;
  }
  const Tally tally = TryAll(arguments);
  const std::string summary = Summary(arguments, tally);
  std::printf("%s\n", summary.c_str());
  if (!arguments.log.empty()) {
    std::ofstream(arguments.log, std::ios::app) << summary << "\n";
  }
  if (!arguments.inject.empty()) {
    std::printf("%s\n", tally.refuted == 0 ? "The injected fault was not noticed." : "The fault was noticed.");
    return tally.refuted == 0 ? 1 : 0;
  }
  return tally.refuted == 0 && tally.proven > 0 ? 0 : 1;
}

}  // namespace
}  // namespace hpvm::bounds

int main(int argc, char** argv) {
  hpvm::bounds::Arguments arguments;
  CLI::App app("Random kernels: what the bounds prover claims, and a search for what refutes it.");
  app.add_option("--seeds", arguments.seeds, "The first and last seed: FIRST..LAST.");
  app.add_option("--launches", arguments.launches, "Ends after so many proven launches.");
  app.add_option("--seconds", arguments.seconds, "Ends after so many seconds; 0: never.");
  app.add_option("--log", arguments.log, "A file that gets the summary as one more line.");
  app.add_option("--commit", arguments.commit, "What the summary calls the commit.");
  app.add_option("--dump", arguments.dump, "Prints the kernel of a seed.");
  app.add_option("--inject", arguments.inject, "\"hi-1\": claims lose their last offset; it must be noticed.")
      ->check(CLI::IsMember({"hi-1"}));
  CLI11_PARSE(app, argc, argv);
  return hpvm::bounds::Run(arguments);
}
