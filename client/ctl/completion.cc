// SPDX-License-Identifier: Apache-2.0
// hpvmctl completion bash|zsh|fish: generates the scripts from the option table, so that they are always up to date.
#include <stdio.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/ctl/options.h"

namespace hpvm::ctl {
namespace {

// Asks the server, if it answers at once, for the candidates. A shell expands what it is offered, so only characters
// of ids and names are kept.
std::string Listing(const std::string& command) {
  return "hpvmctl " + command + " --connect-timeout 0.3 --patience 1ms 2>/dev/null | tr -cd '[:alnum:]_.\\n-'";
}

std::vector<const CLI::App*> CommandsOf(const CLI::App* app) {
  return app->get_subcommands([](const CLI::App*) { return true; });
}

std::string LongOptions(const CLI::App* app) {
  std::string words;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      words += "--" + name + " ";
    }
  }
  return words;
}

std::string Words(const CLI::App* app) {
  std::string words;
  for (const CLI::App* command : CommandsOf(app)) {
    words += command->get_name() + " ";
  }
  return words + LongOptions(app);
}

// Returns "table wide json name" for an option whose text lists its values like that; empty for others.
std::string ChoicesOf(const CLI::Option* option) {
  std::string text = option->get_option_text();
  if (text.find('|') == std::string::npos) {
    return "";
  }
  std::replace(text.begin(), text.end(), '|', ' ');
  return text;
}

// Returns the command that lists the values of the option; empty when there is none.
std::string ListingOf(const CLI::Option* option) {
  const std::string name = option->get_name();
  return name == "job" || name == "--after"         ? Listing("list -o name --limit 50")
         : name == "tenant" || name == "--tenant"   ? Listing("tenant list -o name")
         : name == "token"                          ? Listing("token list -o name")
         : name == "handle" || name == "--handle"   ? Listing("graph list -o name")
         : name == "host" || name == "--on-host"    ? Listing("cluster hosts -o name")
         : name == "buffer"                         ? Listing("buffer list -o name")
         : name == "profile" || name == "--profile" ? Listing("profile list -o name")
                                                    : "";
}

std::string PathOf(const std::string& path, const CLI::App* command) {
  return path.empty() ? command->get_name() : path + " " + command->get_name();
}

void EachCommand(const CLI::App* app, const std::string& path,
                 const std::function<void(const CLI::App*, const std::string&)>& visit) {
  visit(app, path);
  for (const CLI::App* command : CommandsOf(app)) {
    EachCommand(command, PathOf(path, command), visit);
  }
}

// Completes the value of an option: its name is the previous word, whatever the command; options of the same name
// have the same values everywhere.
std::string ValueCases(const CLI::App* app) {
  std::map<std::string, std::string> cases;
  EachCommand(app, "", [&](const CLI::App* command, const std::string&) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string choices = ChoicesOf(option);
      std::string names;
      for (const std::string& name : option->get_lnames()) {
        names += (names.empty() ? "--" : "|--") + name;
      }
      for (const std::string& name : option->get_snames()) {
        names += "|-" + name;
      }
      if (!names.empty() && !choices.empty()) {
        cases[names] = "words=\"" + choices + "\"";
      } else if (!names.empty() && !ListingOf(option).empty()) {
        cases[names] = "words=$(" + ListingOf(option) + ")";
      }
    }
  });
  std::string text;
  for (const auto& [names, value] : cases) {
    text += "    " + names + ") " + value + " ;;\n";
  }
  return text;
}

std::string Bash(const CLI::App* app) {
  std::string paths, words;
  EachCommand(app, "", [&](const CLI::App* command, const std::string& path) {
    std::string dynamic;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional() && !ListingOf(option).empty()) {
        dynamic = " [[ $word == -* ]] || words+=\" $(" + ListingOf(option) + ")\"";
      } else if (option->get_positional()) {
        dynamic = " words+=\" " + ChoicesOf(option) + "\"";
      }
    }
    paths += path.empty() ? "" : (paths.empty() ? "\"" : "|\"") + path + "\"";
    words += "    \"" + path + "\") words=\"" + Words(command) + (path.empty() ? "" : LongOptions(app)) + "\";" +
             (dynamic.empty() ? " " : dynamic) + " ;;\n";
  });
  return "_hpvmctl() {\n"
         "  local path=\"\" words=\"\" i word=${COMP_WORDS[COMP_CWORD]}\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"${path:+$path }${COMP_WORDS[i]}\" in\n"
         "      " +
         paths +
         ") path=\"${path:+$path }${COMP_WORDS[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"${COMP_WORDS[COMP_CWORD - 1]}\" in\n" +
         ValueCases(app) +
         "    *)\n"
         "  case \"$path\" in\n" +
         words +
         "  esac ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _hpvmctl hpvmctl\n";
}

// Escapes text for fish's single quotes.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return escaped;
}

void FishLines(const CLI::App* app, const std::string& parent, std::string* text) {
  const std::string condition = parent.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + parent;
  for (const CLI::App* command : CommandsOf(app)) {
    *text += "complete -c hpvmctl -n '" + condition + "' -a " + command->get_name() + "\n";
    FishLines(command, command->get_name(), text);
  }
  for (const CLI::Option* option : app->get_options()) {
    const std::string start = "complete -c hpvmctl" + (parent.empty() ? std::string() : " -n '" + condition + "'");
    const std::string listing = Escaped(ListingOf(option));
    const std::string values = !listing.empty()            ? " -x -a '(" + listing + ")'"
                               : ChoicesOf(option).empty() ? ""
                                                           : " -x -a '" + ChoicesOf(option) + "'";
    if (option->get_positional() && !values.empty()) {
      *text += start + values + "\n";
    }
    for (const std::string& name : option->get_lnames()) {
      *text += start + " -l " + name + values + "\n";
    }
  }
}

}  // namespace

void AddCompletion(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "completion", "Print a completion script for a shell",
                 "Example:\n  hpvmctl completion bash > ~/.local/share/bash-completion/completions/hpvmctl");
  const auto shell = std::make_shared<std::string>();  // Shared by the option table and the action.
  command.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->option_text("bash|zsh|fish");
  SetWork(commands, command, [=, &app = commands.app](const Globals&) {
    std::string text;
    if (*shell == "fish") {
      FishLines(&app, "", &text);
    } else {
      // zsh runs the script for bash.
      text = (*shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + Bash(&app);
    }
    fputs(text.c_str(), stdout);
    return absl::OkStatus();
  });
}

}  // namespace hpvm::ctl
