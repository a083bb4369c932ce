// SPDX-License-Identifier: Apache-2.0
// Declaration of hpvmctl's commands and their options. Only .cc files that need CLI11 include this header.
#ifndef HPVMD_CLIENT_CTL_OPTIONS_H_
#define HPVMD_CLIENT_CTL_OPTIONS_H_

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"

#include "base/status.h"

namespace hpvm::ctl {

// Adds a command below `parent`, which owns it. `footer` holds its examples.
inline CLI::App& AddCommand(CLI::App& parent, const char* name, const char* description, const std::string& footer) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->footer(footer);
  return *command;
}

// Sets the command's work and makes the options that `work` receives, which live as long as the command. The caller
// declares them next.
template <typename Options>
Options& SetWork(Commands commands, CLI::App& command, Status (*work)(const Globals&, const Options&, ExitCode*)) {
  const auto options = std::make_shared<Options>();  // Shared by the option table, which borrows it, and the action.
  SetWork(commands, command, [=](const Globals& globals, ExitCode* code) { return work(globals, *options, code); });
  return *options;
}
template <typename Options>
Options& SetWork(Commands commands, CLI::App& command, Status (*work)(const Globals&, const Options&)) {
  const auto options = std::make_shared<Options>();  // Shared as above.
  SetWork(commands, command, [=](const Globals& globals) { return work(globals, *options); });
  return *options;
}

// Adds an option that must not be empty: an unset variable in a script must not be taken for the option's absence.
template <typename Value>
CLI::Option* AddWord(CLI::App& command, const char* names, Value& into, const std::string& description) {
  const auto refuse_empty = [](std::string& word) -> std::string {
    return word.empty() ? "It is empty; leave the option out, or give it a value." : "";
  };
  return command.add_option(names, into, description)->check(CLI::Validator(refuse_empty, ""));
}

// Adds an option that may be repeated, with one value each time.
inline CLI::Option* AddEach(CLI::App& command, const char* names, std::vector<std::string>& into,
                            const std::string& description) {
  return command.add_option(names, into, description)->allow_extra_args(false);
}

// Adds an option with named values, which completion offers.
template <typename Value>
CLI::Option* AddChoice(CLI::App& command, const char* names, Value& into,
                       std::initializer_list<std::pair<const char*, Value>> choices, const std::string& description) {
  std::string text;
  for (const auto& [name, value] : choices) {
    text += (text.empty() ? "" : "|") + std::string(name);
  }
  return command.add_option(names, into, description)
      ->transform(CLI::CheckedTransformer(std::map<std::string, Value>(choices.begin(), choices.end())))
      ->option_text(text);
}

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_OPTIONS_H_
