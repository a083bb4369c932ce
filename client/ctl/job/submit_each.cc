// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/submit_each.h"

#include <sstream>

#include "client/ctl/document_files.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using Json = nlohmann::json;

// Placeholder in file names; these jobs have no index of their own.
constexpr char kIndex[] = "{index}";

Status Wrong(const std::string& field, const std::string& wanted) {
  return InvalidArgument("\"" + field.substr(0, 80) + "\" is not " + wanted + ".");
}

Status TakeText(const std::string& field, const Json& value, std::string* text) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return Wrong(field, "a string");
  }
  *text = value.get<std::string>();
  return absl::OkStatus();
}

// Converts {"A": "a.npy", "n": 5} to the words "A=a.npy" and "n=5".
Status TakeWords(const std::string& field, const Json& value, std::vector<std::string>* words) {
  if (!value.is_object()) {
    return Wrong(field, "an object whose members are strings or numbers");
  }
  for (const auto& [name, item] : value.items()) {
    if (!item.is_string() && !item.is_number()) {
      return Wrong(field + "\" of \"" + name, "a string or a number");
    }
    words->push_back(name + "=" + (item.is_string() ? item.get<std::string>() : item.dump()));
  }
  return absl::OkStatus();
}

Status TakeField(const std::string& field, const Json& value, JobLine* line) {
  if (field == "input") {
    return TakeWords(field, value, &line->inputs);
  }
  if (field == "output") {
    return TakeWords(field, value, &line->outputs);
  }
  if (field == "symbol") {
    return TakeWords(field, value, &line->symbols);
  }
  if (field == "label") {
    return TakeWords(field, value, &line->labels);
  }
  if (field == "graph" || field == "name" || field == "key") {
    return TakeText(field, value, field == "graph" ? &line->graph : field == "name" ? &line->name : &line->key);
  }
  return InvalidArgument("\"" + field.substr(0, 80) +
                         "\" is none of input, output, symbol, label, graph, name and key.");
}

StatusOr<JobLine> ParseLine(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgument("It is not a JSON object.");
  }
  JobLine line;
  for (const auto& [field, value] : json.items()) {
    HPVMD_RETURN_IF_ERROR(TakeField(field, value, &line));
  }
  if (line.graph == "-") {
    return InvalidArgument("A line cannot name standard input as its graph.");
  }
  return line;
}

}  // namespace

void JobLine::AddTo(GraphArguments* arguments) const {
  for (std::string& word : arguments->outputs) {
    for (size_t at = word.find(kIndex); at != std::string::npos; at = word.find(kIndex)) {
      word.replace(at, sizeof(kIndex) - 1, std::to_string(number));
    }
  }
  if (!graph.empty()) {
    arguments->place.document = graph;
  }
  arguments->inputs.insert(arguments->inputs.end(), inputs.begin(), inputs.end());
  arguments->symbols.insert(arguments->symbols.end(), symbols.begin(), symbols.end());
  arguments->outputs.insert(arguments->outputs.end(), outputs.begin(), outputs.end());
}

StatusOr<std::vector<JobLine>> ParseJobLines(const std::string& text, const std::string& file) {
  std::vector<JobLine> lines;
  std::istringstream stream(text);
  std::string one;
  for (uint64_t number = 1; std::getline(stream, one); ++number) {
    if (one.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    StatusOr<JobLine> line = ParseLine(one);
    if (!line.ok()) {
      return While(line.status(), "reading line " + std::to_string(number) + " of \"" + file + "\" (--each)");
    }
    line->number = number;
    lines.push_back(*std::move(line));
  }
  if (lines.empty()) {
    return InvalidArgument("The file \"" + file + "\" (--each) has no line with a job.");
  }
  return lines;
}

StatusOr<std::vector<JobLine>> ReadJobLines(const std::string& file) {
  HPVMD_ASSIGN_OR_RETURN(const std::string text, ReadDocument(file));
  return ParseJobLines(text, file);
}

}  // namespace hpvm::ctl
