// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/runner.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/wast/spectest.h"

namespace hpvm::wast {
namespace {

using ir::TrapCode;

// The specification's words; a script may give only their beginning, or more.
struct TrapText {
  std::string_view text;
  TrapCode code;
};
constexpr TrapText kTrapTexts[] = {
    {"unreachable", TrapCode::kUnreachable},
    {"integer divide by zero", TrapCode::kDivideByZero},
    {"integer overflow", TrapCode::kIntegerOverflow},
    {"invalid conversion to integer", TrapCode::kInvalidConversion},
    {"out of bounds memory access", TrapCode::kOutOfBounds},
    {"out of bounds table access", TrapCode::kTableOutOfBounds},
    {"undefined element", TrapCode::kUndefinedElement},
    {"uninitialized element", TrapCode::kUninitializedElement},
    {"indirect call type mismatch", TrapCode::kIndirectCall},
    {"call stack exhausted", TrapCode::kStackOverflow},
    {"unaligned atomic", TrapCode::kMisalignedAtomic},
    {"expected shared memory", TrapCode::kExpectedShared},
};

bool IsTrap(TrapCode code, std::string_view text) {
  return std::any_of(std::begin(kTrapTexts), std::end(kTrapTexts), [&](const TrapText& one) {
    return one.code == code && (text.starts_with(one.text) || one.text.starts_with(text));
  });
}

std::string Quote(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string ToString(std::span<const Value> values, std::span<const Pattern> patterns) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same_type = i < patterns.size() && patterns[i].type == values[i].type;
    text += (i == 0 ? "" : ", ") + (same_type ? ToString(values[i], patterns[i].lane) : ToString(values[i]));
  }
  return text.empty() ? "nothing" : text;
}

std::string ToString(std::span<const Pattern> patterns, std::string_view separator) {
  std::string text;
  for (const Pattern& pattern : patterns) {
    text += (text.empty() ? "" : std::string(separator)) + ToString(pattern);
  }
  return text.empty() ? "nothing" : text;
}

bool ResultsMatch(const Command& command, const std::vector<Value>& results) {
  if (command.is_either) {
    return results.size() == 1 && std::any_of(command.expected.begin(), command.expected.end(),
                                              [&](const Pattern& pattern) { return Matches(pattern, results[0]); });
  }
  return std::equal(command.expected.begin(), command.expected.end(), results.begin(), results.end(), Matches);
}

std::string Describe(const Instantiation& made) {
  switch (made.fault) {
    case InstantiateFault::kNone:
      return "The module was instantiated.";
    case InstantiateFault::kTrap:
      return "The module trapped at its start: " + made.text + ".";
    case InstantiateFault::kUnlinkable:
      return "The module could not be linked: " + made.text;
    case InstantiateFault::kInvalid:
      return "The module was refused: " + made.text;
    case InstantiateFault::kBroken:
      return "The module could not be compiled: " + made.text;
  }
  return "?";
}

// Returns true when instantiation failed as the command demands.
bool FailedAsExpected(const Command& command, const Instantiation& made) {
  switch (command.kind) {
    case CommandKind::kAssertInvalid:
    case CommandKind::kAssertMalformed:
      return made.fault == InstantiateFault::kInvalid;
    case CommandKind::kAssertUnlinkable:
      return made.fault == InstantiateFault::kUnlinkable && made.text.starts_with(command.text);
    case CommandKind::kAssertUninstantiable:
      return made.fault == InstantiateFault::kTrap && IsTrap(made.trap, command.text);
    default:
      return false;
  }
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool NamesModule(CommandKind kind) {
  return kind == CommandKind::kModule || kind == CommandKind::kAssertInvalid || kind == CommandKind::kAssertMalformed ||
         kind == CommandKind::kAssertUnlinkable || kind == CommandKind::kAssertUninstantiable;
}

}  // namespace

StatusOr<std::unique_ptr<Runner>> Runner::Create(Engine& engine, bool verbose) {
  std::unique_ptr<Runner> runner(new Runner(verbose));
  HPVMD_ASSIGN_OR_RETURN(runner->store_, Store::Create(engine));
  HPVMD_RETURN_IF_ERROR(AddSpectest(*runner->store_));
  return runner;
}

Totals Runner::Run(const Script& script) {
  Totals totals;
  for (const Command& command : script.commands) {
    const std::string place = script.source + ":" + std::to_string(command.line) + ": ";
    if (NamesModule(command.kind) && command.is_text) {
      ++totals.skipped;
      continue;
    }
    refusal_.clear();
    const std::string fault = RunCommand(command);
    ++(fault.empty() ? totals.passed : totals.failed);
    if (!fault.empty() || verbose_) {
      const std::string text = fault.empty() ? "ok" + (refusal_.empty() ? "" : ". " + refusal_) : fault;
      std::printf("%s%s: %s\n", place.c_str(), std::string(Name(command.kind)).c_str(), text.c_str());
    }
  }
  return totals;
}

std::string Runner::RunCommand(const Command& command) {
  switch (command.kind) {
    case CommandKind::kModule:
      return RunModule(command);
    case CommandKind::kRegister:
      return RunRegister(command);
    case CommandKind::kAction:
    case CommandKind::kAssertReturn:
      return RunReturn(command);
    case CommandKind::kAssertTrap:
    case CommandKind::kAssertExhaustion:
      return RunTrap(command);
    default:
      return RunRefusal(command);
  }
}

std::string Runner::RunModule(const Command& command) {
  latest_ = nullptr;
  const StatusOr<std::string> bytes = ReadFile(command.filename);
  if (!bytes.ok()) {
    return Message(bytes.status());
  }
  const Instantiation made = store_->Instantiate(AsBytes(*bytes));
  latest_ = made.instance;
  if (!command.name.empty()) {
    named_[command.name] = made.instance;
  }
  return made.instance != nullptr ? "" : Describe(made);
}

std::string Runner::RunRegister(const Command& command) {
  const Instance* instance = Find(command.name);
  if (instance == nullptr) {
    return "There is no instance " + Quote(command.name) + " to register.";
  }
  store_->Register(command.as, instance->exports);
  return "";
}

std::string Runner::RunRefusal(const Command& command) {
  const StatusOr<std::string> bytes = ReadFile(command.filename);
  if (!bytes.ok()) {
    return Message(bytes.status());
  }
  const Instantiation made = store_->Instantiate(AsBytes(*bytes));
  refusal_ = "Expected " + Quote(command.text) + ". " + Describe(made);
  return FailedAsExpected(command, made) ? "" : refusal_;
}

std::string Runner::RunReturn(const Command& command) {
  const StatusOr<CallOutcome> outcome = Act(command.action);
  if (!outcome.ok()) {
    return Message(outcome.status());
  }
  const bool returned = outcome->trap == TrapCode::kNone;
  if (returned && (command.kind == CommandKind::kAction || ResultsMatch(command, outcome->results))) {
    return "";
  }
  const std::string expected = command.kind == CommandKind::kAction
                                   ? "any results"
                                   : ToString(command.expected, command.is_either ? " or " : ", ");
  const std::string came =
      returned ? ToString(outcome->results, command.expected) : "the trap " + Quote(ir::Name(outcome->trap));
  return "\"" + command.action.field + "\": expected " + expected + "; came " + came + ".";
}

std::string Runner::RunTrap(const Command& command) {
  const StatusOr<CallOutcome> outcome = Act(command.action);
  if (!outcome.ok()) {
    return Message(outcome.status());
  }
  const bool is_exhaustion = command.kind == CommandKind::kAssertExhaustion;
  if (is_exhaustion ? outcome->trap == TrapCode::kStackOverflow : IsTrap(outcome->trap, command.text)) {
    return "";
  }
  const std::string came =
      outcome->trap == TrapCode::kNone ? ToString(outcome->results, {}) : "the trap " + Quote(ir::Name(outcome->trap));
  return "\"" + command.action.field + "\": expected the trap " + Quote(command.text) + "; came " + came + ".";
}

const Instance* Runner::Find(const std::string& name) const {
  if (name.empty()) {
    return latest_;
  }
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : found->second;
}

StatusOr<CallOutcome> Runner::Act(const Action& action) {
  const Instance* instance = Find(action.module);
  if (instance == nullptr) {
    return FailedPrecondition("There is no instance " + Quote(action.module) + ".");
  }
  if (!action.is_get) {
    return store_->Invoke(*instance, action.field, action.arguments);
  }
  HPVMD_ASSIGN_OR_RETURN(const Value value, store_->Get(*instance, action.field));
  return CallOutcome{TrapCode::kNone, {value}};
}

}  // namespace hpvm::wast
