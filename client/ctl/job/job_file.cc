// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/job_file.h"

#include <array>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/diagnostic.h"
#include "graph/diagnostic_sink.h"
#include "graph/json_tree.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

// Reader holds one value, its place in the document, and the errors so far.
class Reader {
 public:
  Reader(std::string place, Diagnostics* faults) : place_(std::move(place)), faults_(faults) {}

  Reader Below(std::string_view name) const {
    std::string place = place_ + "/";
    graph::AppendPointerToken(place, name);
    return Reader(std::move(place), faults_);
  }
  void Refuse(const std::string& message) const {
    faults_->push_back({.place = place_.empty() ? "/" : place_, .offset = {}, .message = message});
  }

  void Text(const Json& value, std::string* into) const {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return Refuse("It has to be a string that is not empty.");
    }
    *into = value.get<std::string>();
  }
  void Flag(const Json& value, bool* into) const {
    if (!value.is_boolean()) {
      return Refuse("It has to be true or false.");
    }
    *into = value.get<bool>();
  }
  template <typename Number>
  void Integer(const Json& value, int64_t least, int64_t most, Number* into) const {
    const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) &&
                      value.get<int64_t>() >= least && value.get<int64_t>() <= most;
    if (!fits) {
      return Refuse("It has to be an integer from " + std::to_string(least) + " to " + std::to_string(most) + ".");
    }
    *into = value.get<Number>();
  }
  // Returns a text as it is, or a number as it is written.
  std::optional<std::string> Word(const Json& value) const {
    if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
      Refuse("It has to be a string or a number.");
      return std::nullopt;
    }
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  // Converts {"A": "a.npy", "n": 5} to "A=a.npy" and "n=5".
  void Pairs(const Json& value, std::vector<std::string>* words) const {
    if (!value.is_object()) {
      return Refuse("It has to be an object whose members are strings or numbers.");
    }
    for (const auto& [name, item] : value.items()) {
      if (const std::optional<std::string> word = Below(name).Word(item); word.has_value()) {
        words->push_back(name + "=" + *word);
      }
    }
  }
  void Texts(const Json& value, std::vector<std::string>* texts) const {
    if (value.is_string()) {
      return Text(value, &texts->emplace_back());
    }
    if (!value.is_array()) {
      return Refuse("It has to be a string or a list of strings.");
    }
    for (size_t i = 0; i < value.size(); ++i) {
      Below(std::to_string(i)).Text(value[i], &texts->emplace_back());
    }
  }

 private:
  const std::string place_;
  Diagnostics* const faults_;
};

constexpr int64_t kVersion = 1;

struct Field {
  std::string_view name;
  void (*take)(const Reader&, const Json&, JobFile*);
};
constexpr auto kFields = std::to_array<Field>({
    {"$schema", [](const Reader&, const Json&, JobFile*) {}},
    {"hpvm_job",
     [](const Reader& at, const Json& value, JobFile*) {
       int64_t version = 0;
       at.Integer(value, kVersion, kVersion, &version);
     }},
    {"graph",
     [](const Reader& at, const Json& value, JobFile* file) {
       if (value.is_object()) {
         file->job.graph.arguments.place.text = value.dump();
       } else {
         at.Text(value, &file->job.graph.arguments.place.document);
       }
     }},
    {"modules",
     [](const Reader& at, const Json& value, JobFile* file) {
       if (!value.is_object()) {
         return at.Refuse("It has to be an object that has a file for each module's name.");
       }
       for (const auto& [name, item] : value.items()) {
         at.Below(name).Text(item, &file->modules[name]);
       }
     }},
    {"inputs",
     [](const Reader& at, const Json& value, JobFile* file) { at.Pairs(value, &file->job.graph.arguments.inputs); }},
    {"outputs",
     [](const Reader& at, const Json& value, JobFile* file) { at.Pairs(value, &file->job.graph.arguments.outputs); }},
    {"symbols",
     [](const Reader& at, const Json& value, JobFile* file) { at.Pairs(value, &file->job.graph.arguments.symbols); }},
    {"devices",
     [](const Reader& at, const Json& value, JobFile* file) { at.Texts(value, &file->job.graph.arguments.devices); }},
    {"repeat", [](const Reader& at, const Json& value,
                  JobFile* file) { at.Integer(value, 1, 1'000'000, &file->job.graph.arguments.repeat); }},
    {"rotate",
     [](const Reader& at, const Json& value, JobFile* file) { at.Pairs(value, &file->job.graph.arguments.rotate); }},
    {"until",
     [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.graph.arguments.until); }},
    {"name", [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.name); }},
    {"labels", [](const Reader& at, const Json& value, JobFile* file) { at.Pairs(value, &file->job.graph.labels); }},
    {"priority", [](const Reader& at, const Json& value,
                    JobFile* file) { at.Integer(value, -100, 100, &file->job.graph.priority); }},
    {"deadline", [](const Reader& at, const Json& value,
                    JobFile* file) { file->job.graph.deadline = at.Word(value).value_or(""); }},
    {"attempts",
     [](const Reader& at, const Json& value, JobFile* file) { at.Integer(value, 1, 10, &file->job.attempts); }},
    {"max_wait",
     [](const Reader& at, const Json& value, JobFile* file) { file->job.wait_max = at.Word(value).value_or(""); }},
    {"max_run",
     [](const Reader& at, const Json& value, JobFile* file) { file->job.run_max = at.Word(value).value_or(""); }},
    {"max_device_time", [](const Reader& at, const Json& value,
                           JobFile* file) { file->job.device_time_max = at.Word(value).value_or(""); }},
    {"needs", [](const Reader& at, const Json& value, JobFile* file) { at.Texts(value, &file->job.needs); }},
    {"on_host", [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.host); }},
    {"host_memory",
     [](const Reader& at, const Json& value, JobFile* file) { file->job.host_memory = at.Word(value).value_or(""); }},
    {"hold", [](const Reader& at, const Json& value, JobFile* file) { at.Flag(value, &file->job.held); }},
    {"after", [](const Reader& at, const Json& value, JobFile* file) { at.Texts(value, &file->job.after); }},
    {"array", [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.array); }},
    {"array_symbol",
     [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.array_symbol); }},
    {"key",
     [](const Reader& at, const Json& value, JobFile* file) { at.Text(value, &file->job.graph.idempotency_key); }},
});

void Take(const Json& json, const Reader& root, JobFile* file) {
  for (const auto& [name, value] : json.items()) {
    graph::NearMiss near_miss(name);
    const Field* known = nullptr;
    for (const Field& field : kFields) {
      known = field.name == name ? &field : known;
      near_miss.Offer(field.name);
    }
    if (known == nullptr) {
      root.Below(name).Refuse("There is no such member of a job" + near_miss.Ending());
    } else {
      known->take(root.Below(name), value, file);
    }
  }
  for (const char* name : {"hpvm_job", "graph"}) {
    if (!json.contains(name)) {
      root.Refuse("\"" + std::string(name) + "\" is missing" +
                  (std::string_view(name) == "graph" ? "; it is a graph document, or the file of one." : "; it is 1."));
    }
  }
}

}  // namespace

StatusOr<JobFile> ParseJobFile(const std::string& file, std::string_view text) {
  const auto refuse = [&](const Diagnostics& faults) {
    return InvalidArgument("The job file \"" + file + "\" is not valid:\n" + ToString(faults));
  };
  const graph::Limits limits;
  graph::DiagnosticSink faults(limits.diagnostics_max);
  // Detects duplicate members, which a parser that keeps the last one does not.
  if (graph::JsonTree tree; !tree.Read(text, limits, faults) || faults.has_errors()) {
    return refuse(faults.Take());
  }
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Diagnostics wrong;
  const Reader root("", &wrong);
  JobFile job;
  if (!json.is_object()) {
    root.Refuse("A job file is a JSON object.");
  } else {
    Take(json, root, &job);
  }
  if (!wrong.empty()) {
    return refuse(wrong);
  }
  return job;
}

}  // namespace hpvm::ctl
