// SPDX-License-Identifier: Apache-2.0
// hpvmctl completion bash|zsh|fish: scripts made from the option table itself, so that they cannot fall behind it.
#include <stdio.h>

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"

namespace hpvm::ctl {
namespace {

std::string Words(const CLI::App* app) {
  std::string words;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    words += command->get_name() + " ";
  }
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      words += "--" + name + " ";
    }
  }
  return words;
}

// One line of a case statement for `app` and each command below it: the command path, then what may follow.
void Cases(const CLI::App* app, const std::string& path, const std::string& globals, std::string* text) {
  *text += "    \"" + path + "\") words=\"" + Words(app) + (path.empty() ? "" : globals) + "\" ;;\n";
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    Cases(command, path.empty() ? command->get_name() : path + " " + command->get_name(), globals, text);
  }
}

std::string GlobalOptions(const CLI::App* app) {
  std::string words;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      words += "--" + name + " ";
    }
  }
  return words;
}

std::string Bash(const CLI::App* app) {
  std::string text =
      "_hpvmctl() {\n"
      "  local path=\"\" word words i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    [[ $word =~ ^[a-z]+$ ]] && [[ ! -e $word ]] && path=\"${path:+$path }$word\"\n"
      "  done\n"
      "  case \"$path\" in\n";
  Cases(app, "", GlobalOptions(app), &text);
  text += "    *) words=\"" + GlobalOptions(app) +
          "\" ;;\n"
          "  esac\n"
          "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
          "}\n"
          "complete -o default -F _hpvmctl hpvmctl\n";
  return text;
}

void FishLines(const CLI::App* app, const std::string& parent, std::string* text) {
  std::string condition = parent.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + parent;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    *text += "complete -c hpvmctl -n '" + condition + "' -a " + command->get_name() + "\n";
    FishLines(command, command->get_name(), text);
  }
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      *text +=
          "complete -c hpvmctl" + (parent.empty() ? std::string() : " -n '" + condition + "'") + " -l " + name + "\n";
    }
  }
}

}  // namespace

void AddCompletion(Commands commands) {
  auto shell =
      std::make_shared<std::string>();  // Shared by the option table and the action, which outlive this function.
  CLI::App* command = commands.app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer("Example:\n  hpvmctl completion bash > ~/.local/share/bash-completion/completions/hpvmctl");
  command->callback([=, &app = commands.app, &action = commands.action] {
    action = [=, &app] {
      std::string text;
      if (*shell == "fish") {
        FishLines(&app, "", &text);
      } else {
        // zsh runs bash's script.
        text = (*shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + Bash(&app);
      }
      fputs(text.c_str(), stdout);
      return kOk;
    };
  });
}

}  // namespace hpvm::ctl
