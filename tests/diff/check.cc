// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/check.h"

#include <utility>

#include "tests/diff/encode.h"

namespace hpvm::diff {
namespace {

constexpr uint64_t kPageBytes = 64 * 1024;

std::string Sentence(const ir::TrapReport& trap) {
  if (trap.code == ir::TrapCode::kNone) {
    return "no trap";
  }
  return "\"" + std::string(ir::Name(trap.code)) + "\" in instance (" + std::to_string(trap.instance[0]) + ", " +
         std::to_string(trap.instance[1]) + ", " + std::to_string(trap.instance[2]) + "), function " +
         std::to_string(trap.function) + ", byte " + std::to_string(trap.source);
}

std::string Hex(uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {kDigits[byte >> 4], kDigits[byte & 15]};
}

// V8 does not distinguish a null entry from one of another type, nor the reasons why a float does not fit an integer.
ir::TrapCode ForV8(ir::TrapCode code) {
  switch (code) {
    case ir::TrapCode::kUninitializedElement:
    case ir::TrapCode::kUndefinedElement:
      return ir::TrapCode::kIndirectCall;
    case ir::TrapCode::kIntegerOverflow:
      return ir::TrapCode::kInvalidConversion;
    default:
      return code;
  }
}

// Keeps only what V8 reports about a trap.
Outcome AsV8(Outcome outcome) {
  outcome.trap.code = ForV8(outcome.trap.code);
  if (outcome.trap.code == ir::TrapCode::kNone) {
    outcome.trap.instance = {};
  }
  outcome.trap.function = outcome.trap.source = 0;
  return outcome;
}

Verdict Fail(Verdict verdict, const Status& status, CheckResult& result) {
  result.explanation = Message(status);
  return result.verdict = verdict;
}

// Returns true when V8 can run it: V8's form has no barriers, and no gaps between buffers.
bool ForV8(const Program& program) { return !program.has_barrier && !program.is_wild; }

Status SendToV8(const Program& program, const ir::Module& module, const LaunchSpec& launch, V8& v8) {
  const std::optional<std::vector<uint8_t>> bytes = Encode(program, Dialect::kV8);
  HPVMD_ASSIGN_OR_RETURN(const ir::AddressSpace space, Addresses(module, launch));
  return v8.Send({*bytes, launch, space, module.memory_bytes / kPageBytes, module.memory_bytes_max / kPageBytes,
                  module.is_memory64});
}

void CompareAll(const Program& program, const StatusOr<std::vector<Outcome>>& cpu,
                const std::optional<StatusOr<Outcome>>& v8, CheckResult& result) {
  const Outcome interpreted = *std::move(result.expected);
  result.expected = interpreted;
  const std::string v8_says = v8 && v8->ok() ? Compare(AsV8(interpreted), AsV8(**v8), false) : "";
  if (!cpu.ok()) {
    Fail(Verdict::kCpuFails, cpu.status(), result);
    return;
  }
  const auto [differing, cpu_says] = CompareEach(interpreted, *cpu, program.has_barrier);
  if (!cpu_says.empty()) {
    result.verdict = Verdict::kCpuDiffers;
    result.explanation = "interpreter and CPU: " + cpu_says;
    if (v8 && v8->ok()) {
      result.explanation += v8_says.empty() ? " V8 agrees with the interpreter." : " Interpreter and V8: " + v8_says;
      if (!v8_says.empty() && Compare(AsV8(differing), AsV8(**v8), false).empty()) {
        result.expected = differing;
      }
    }
  } else if (v8 && !v8->ok()) {
    Fail(Verdict::kV8Fails, v8->status(), result);
  } else if (!v8_says.empty()) {
    result.verdict = Verdict::kV8Differs;
    result.explanation = "interpreter and V8: " + v8_says + " The CPU agrees with the interpreter.";
    result.expected = **v8;
  }
}

}  // namespace

std::string_view Name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"same",      "too long",    "invalid",  "refused",    "interpreter fails",
                                         "CPU fails", "CPU differs", "V8 fails", "V8 differs", "crash",
                                         "hang"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string Compare(const Outcome& expected, const Outcome& got, bool only_whether) {
  const ir::TrapReport& a = expected.trap;
  const ir::TrapReport& b = got.trap;
  const bool both_trap = a.code != ir::TrapCode::kNone && b.code != ir::TrapCode::kNone;
  if (only_whether && both_trap) {
    return "";
  }
  if (a.code != b.code ||
      (both_trap && (a.instance != b.instance || a.function != b.function || a.source != b.source))) {
    return Sentence(a) + " against " + Sentence(b) + ".";
  }
  for (size_t k = 0; k < expected.buffers.size(); ++k) {
    for (size_t i = 0; i < expected.buffers[k].size(); ++i) {
      if (expected.buffers[k][i] != got.buffers[k][i]) {
        return "byte " + std::to_string(i) + " of buffer " + std::to_string(k) + ": " + Hex(expected.buffers[k][i]) +
               " against " + Hex(got.buffers[k][i]) + ".";
      }
    }
  }
  return "";
}

std::pair<Outcome, std::string> CompareEach(const Outcome& expected, const std::vector<Outcome>& got,
                                            bool only_whether) {
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string difference = Compare(expected, got[i], only_whether || i > 0);
    if (!difference.empty()) {
      return {got[i], (i > 0 ? "variant " + std::to_string(i - 1) + ": " : "") + difference};
    }
  }
  return {got.front(), ""};
}

CheckResult Check(const Program& program, const CheckOptions& options) {
  CheckResult result;
  std::optional<std::vector<uint8_t>> bytes = Encode(program, Dialect::kKernel);
  if (!bytes) {
    result.verdict = Verdict::kInvalid;
    return result;
  }
  result.module = *std::move(bytes);
  const LaunchSpec launch = LaunchOf(program);
  const StatusOr<ir::Module> module = Read(result.module, launch);
  if (!module.ok()) {
    Fail(Verdict::kRefused, module.status(), result);
    return result;
  }
  StatusOr<Outcome> interpreted = Interpret(*module, launch, options.steps_max);
  if (!interpreted.ok()) {
    Fail(Verdict::kInterpreter, interpreted.status(), result);
    return result;
  }
  if (interpreted->trap.code == ir::TrapCode::kStopped) {
    result.verdict = Verdict::kTooLong;
    return result;
  }
  result.expected = *std::move(interpreted);
  // V8 works while the CPU's image is compiled.
  const bool has_v8 = options.v8 != nullptr && ForV8(program);
  Status sent = has_v8 ? SendToV8(program, *module, launch, *options.v8) : absl::OkStatus();
  const StatusOr<std::vector<Outcome>> cpu = RunOnCpu(*module, launch, options.form, options.fault);
  std::optional<StatusOr<Outcome>> v8;
  if (has_v8) {
    v8 = sent.ok() ? options.v8->Receive(launch) : StatusOr<Outcome>(sent);
  }
  result.ran_on_v8 = v8 && v8->ok();
  CompareAll(program, cpu, v8, result);
  return result;
}

}  // namespace hpvm::diff
