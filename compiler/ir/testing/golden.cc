// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/testing/golden.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "gtest/gtest.h"

#include "compiler/ir/testing/elements.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::ir::testing {
namespace {

// A part of another argument's bytes.
struct View {
  std::string of;
  uint64_t first = 0, bytes = 0;
};

struct Run {
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::array<uint64_t, 3> group{1, 1, 1};
  bool is_stopped = false;
  bool always_outputs = false;
  std::map<std::string, Elements> arguments;  // Keyed by parameter.
  std::map<std::string, View> views;          // Keyed by parameter.
};

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Returns the rest of the line after ";; word" when the line is that directive.
bool TakeDirective(const std::string& line, const std::string& word, std::string* rest) {
  const std::string start = ";; " + word;
  if (line.substr(0, start.size()) != start || (line.size() > start.size() && line[start.size()] != ' ')) {
    return false;
  }
  *rest = line.size() > start.size() ? line.substr(start.size() + 1) : "";
  return true;
}

bool IsExpectation(const std::string& line) {
  std::string rest;
  return TakeDirective(line, "ends", &rest) || TakeDirective(line, "trap", &rest) ||
         TakeDirective(line, "refused", &rest) || TakeDirective(line, "out", &rest);
}

StatusOr<std::array<uint64_t, 3>> ParseTriple(const std::string& text) {
  std::array<uint64_t, 3> values{1, 1, 1};
  std::istringstream stream(text);
  std::string part;
  for (size_t i = 0; std::getline(stream, part, ','); ++i) {
    if (i == 3 || part.empty() || part.find_first_not_of("0123456789") != std::string::npos) {
      return InvalidArgument("\"" + text + "\" is not up to three numbers.");
    }
    values[i] = std::strtoull(part.c_str(), nullptr, 10);
  }
  return values;
}

StatusOr<Run> ParseRun(const std::string& rest) {
  Run run;
  std::istringstream stream(rest);
  for (std::string word; stream >> word;) {
    if (word.rfind("extent=", 0) == 0) {
      HPVMD_ASSIGN_OR_RETURN(run.extent, ParseTriple(word.substr(7)));
    } else if (word.rfind("group=", 0) == 0) {
      HPVMD_ASSIGN_OR_RETURN(run.group, ParseTriple(word.substr(6)));
    } else if (word == "stop") {
      run.is_stopped = true;
    } else if (word == "outputs") {
      run.always_outputs = true;
    } else {
      return InvalidArgument("\"" + word + "\" is not part of a run.");
    }
  }
  return run;
}

Status ParseArg(const std::string& rest, Run* run) {
  const size_t equals = rest.find(" = ");
  if (equals == std::string::npos) {
    return InvalidArgument("\"arg " + rest + "\" has no \" = \".");
  }
  const std::string value = rest.substr(equals + 3);
  if (value.rfind("view ", 0) == 0) {
    View view;
    std::istringstream words(value.substr(5));
    if (!(words >> view.of >> view.first >> view.bytes)) {
      return InvalidArgument("\"" + value + "\" is no view: it is `view ARGUMENT FIRST BYTES`.");
    }
    run->views.insert_or_assign(rest.substr(0, equals), std::move(view));
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(Elements elements, ParseElements(value));
  run->arguments.insert_or_assign(rest.substr(0, equals), std::move(elements));
  return absl::OkStatus();
}

StatusOr<Argument> ArgumentFor(const KernelParam& param, Run& run) {
  const auto view = run.views.find(param.name);
  const auto found = run.arguments.find(view == run.views.end() ? param.name : view->second.of);
  if (found == run.arguments.end()) {
    return InvalidArgument("The run gives no argument for \"" + param.name + "\".");
  }
  Elements& elements = found->second;
  if (!param.is_buffer) {
    return Argument{nullptr, 0, elements.FirstBits()};
  }
  if (view == run.views.end()) {
    return Argument{elements.data(), elements.bytes(), 0};
  }
  const auto& [of, first, bytes] = view->second;
  if (bytes > elements.bytes() || first > elements.bytes() - bytes) {
    return InvalidArgument("The view \"" + param.name + "\" does not fit \"" + of + "\".");
  }
  return Argument{elements.data() + first, bytes, 0};
}

// Executes one run and returns its expectation lines.
StatusOr<std::vector<std::string>> Execute(const Module& module, Run& run, const Engine& engine) {
  Launch launch;
  launch.extent = run.extent;
  launch.group = run.group;
  const std::atomic<uint32_t> stop{run.is_stopped ? 1u : 0u};
  launch.stop = &stop;
  if (run.arguments.size() + run.views.size() != module.params.size()) {
    return InvalidArgument("The run does not give each parameter once.");
  }
  for (const KernelParam& param : module.params) {
    HPVMD_ASSIGN_OR_RETURN(const Argument argument, ArgumentFor(param, run));
    launch.arguments.push_back(argument);
  }
  const StatusOr<TrapReport> report = engine(module, launch);
  if (!report.ok()) {
    return std::vector{";; refused " + Message(report.status())};
  }
  const bool trapped = report->code != TrapCode::kNone;
  std::vector<std::string> lines{trapped ? ";; trap " + ToString(*report, module) : ";; ends"};
  for (const KernelParam& param : module.params) {
    if (param.is_buffer && param.is_writable && !run.views.contains(param.name) && (!trapped || run.always_outputs)) {
      lines.push_back(";; out " + param.name + " = " + run.arguments.at(param.name).ToString());
    }
  }
  return lines;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

StatusOr<std::string> RunGoldenText(std::string_view text, const Engine& engine) {
  HPVMD_ASSIGN_OR_RETURN(const Module module, ParseModule(text));
  HPVMD_RETURN_IF_ERROR(ToStatus(Verify(module)));
  std::string out;
  Run run;
  bool is_open = false, has_run = false;
  // A run's lines end at the first line that is neither an argument nor an expectation.
  const auto finish = [&]() -> Status {
    if (std::exchange(is_open, false)) {
      HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> lines, Execute(module, run, engine));
      for (const std::string& line : lines) {
        out += line + '\n';
      }
    }
    return absl::OkStatus();
  };
  for (const std::string& line : Lines(text)) {
    std::string rest;
    if (IsExpectation(line)) {
      if (!is_open) {
        return InvalidArgument("\"" + line + "\" belongs to no run.");
      }
      continue;
    }
    const bool is_arg = TakeDirective(line, "arg", &rest);
    if (!is_arg) {
      HPVMD_RETURN_IF_ERROR(finish());
    } else if (!is_open) {
      return InvalidArgument("\"" + line + "\" belongs to no run.");
    } else {
      HPVMD_RETURN_IF_ERROR(ParseArg(rest, &run));
    }
    if (TakeDirective(line, "run", &rest)) {
      HPVMD_ASSIGN_OR_RETURN(run, ParseRun(rest));
      is_open = has_run = true;
    }
    out += line + '\n';
  }
  HPVMD_RETURN_IF_ERROR(finish());
  if (!has_run) {
    return InvalidArgument("The file runs nothing.");
  }
  return out;
}

std::vector<std::string> GoldenFiles(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".ir" && entry.is_regular_file()) {
      paths.push_back(entry.path().string());
    } else {
      ADD_FAILURE() << entry.path() << " is not a golden kernel (*.ir).";
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void CheckGoldenFile(const std::string& path, const Engine& engine, bool may_bless) {
  const std::string want = ReadFile(path);
  const StatusOr<std::string> found = RunGoldenText(want, engine);
  if (!found.ok()) {
    ADD_FAILURE() << path << ": " << Message(found.status());
    return;
  }
  if (*found == want) {
    return;
  }
  const char* bless = std::getenv("HPVMD_BLESS");
  if (may_bless && bless != nullptr && std::string_view(bless) == "1") {
    std::ofstream(path) << *found;
    return;
  }
  ADD_FAILURE() << path << ":\n"
                << Diff(want, *found) << "HPVMD_BLESS=1 ir_golden_test rewrites it, if the change is meant.";
}

std::string Diff(std::string_view want, std::string_view found) {
  const std::vector<std::string> a = Lines(want), b = Lines(found);
  std::string diff;
  size_t first = 0;
  while (first < a.size() && first < b.size() && a[first] == b[first]) {
    ++first;
  }
  size_t a_end = a.size(), b_end = b.size();
  while (a_end > first && b_end > first && a[a_end - 1] == b[b_end - 1]) {
    --a_end;
    --b_end;
  }
  for (size_t i = first; i < a_end; ++i) {
    diff += '-' + a[i] + '\n';
  }
  for (size_t i = first; i < b_end; ++i) {
    diff += '+' + b[i] + '\n';
  }
  return diff;
}

}  // namespace hpvm::ir::testing
