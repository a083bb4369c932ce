// SPDX-License-Identifier: Apache-2.0
// hpvmctl bundle: saves everything a job was made of and its outcome in a folder that `apply` and `replay` read.
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "client/ctl/job/history.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;
using Part = v1::ExportJobResponse::Part;

struct Options {
  std::string job, folder;
  bool without_outputs = false;
};

// Makes a file name from the name of a port or module. Characters other than letters, digits and "._-" become "_".
std::string FileName(const std::string& name, std::set<std::string>* taken) {
  std::string file;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                          c == '-' || (c == '.' && !file.empty());
    file += is_plain ? c : '_';
  }
  file = file.empty() ? "unnamed" : file.substr(0, 100);
  std::string free = file;
  for (int n = 2; !taken->insert(free).second; ++n) {
    free = file + "-" + std::to_string(n);
  }
  return free;
}

class Bundle {
 public:
  Bundle(Client& client, std::string folder) : client_(client), folder_(std::move(folder)) {}

  Status Make() {
    if (mkdir(folder_.c_str(), 0700) == 0) {
      return absl::OkStatus();
    }
    return errno == EEXIST ? AlreadyExists("\"" + folder_ + "\" already exists; name another folder with --output.")
                           : FromErrno(errno, "Making the folder \"" + folder_ + "\"");
  }

  Status Write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::error_code ignored;
    std::filesystem::create_directories(path.parent_path(), ignored);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    return file ? absl::OkStatus() : Unavailable("The file \"" + path.string() + "\" cannot be written.");
  }

  // Writes .npy when NumPy has the type, otherwise raw bytes. Returns the file's name.
  StatusOr<std::string> WriteTensor(const std::string& name, const Tensor& tensor) const {
    const bool is_npy = tensor.type != ElementType::kBF16;
    const std::string file = name + (is_npy ? ".npy" : ".bin");
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::path(folder_) / file;
    std::filesystem::create_directories(path.parent_path(), ignored);
    HPVMD_RETURN_IF_ERROR(WriteTensorFile(path.string(), tensor));
    return file;
  }

  // Writes the job file and the files that it names.
  Status WriteRequest(const std::string& id) {
    HPVMD_ASSIGN_OR_RETURN(const Client::ExportedJob job, client_.ExportJob(id));
    Json file = {{"hpvm_job", 1}, {"graph", "graph.json"}};
    AddOptions(job.request, &file);
    for (const Part& part : job.parts) {
      HPVMD_RETURN_IF_ERROR(While(AddPart(id, part, &file), "fetching what job " + id + " was submitted with"));
    }
    for (const v1::InputBinding& input : job.request.inputs()) {
      if (input.has_tensor()) {
        Tensor tensor{static_cast<ElementType>(input.tensor().type()),
                      {input.tensor().shape().begin(), input.tensor().shape().end()},
                      {input.tensor().data().begin(), input.tensor().data().end()}};
        HPVMD_RETURN_IF_ERROR(AddInput(input.name(), tensor, &file));
      }
    }
    return Write("job.json", file.dump(2) + "\n");
  }

  Status WriteOutputs(const v1::Job& job) {
    std::set<std::string> taken;
    Json files = Json::object();
    for (const v1::OutputValue& output : job.outputs()) {
      if (output.has_stored()) {
        HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, client_.FetchOutput(job.id(), output.name()));
        HPVMD_ASSIGN_OR_RETURN(files[output.name()], WriteTensor("outputs/" + FileName(output.name(), &taken), tensor));
      }
    }
    return Write("outputs.json", files.dump(2) + "\n");
  }

 private:
  static void AddOptions(const v1::SubmitRequest& request, Json* file) {
    const auto set = [&](const char* key, const auto& value, bool is_set) {
      if (is_set) {
        (*file)[key] = value;
      }
    };
    set("name", request.name(), !request.name().empty());
    set("repeat", request.repeat(), request.repeat() > 1);
    set("until", request.until(), !request.until().empty());
    set("priority", request.options().priority(), request.options().priority() != 0);
    set("attempts", request.retry().attempts_max(), request.retry().attempts_max() != 0);
    set("deadline", static_cast<double>(request.options().deadline_ns()) / 1e9, request.options().deadline_ns() != 0);
    for (const auto& [name, value] : request.symbols()) {
      (*file)["symbols"][name] = value;
    }
    for (const auto& [name, value] : request.options().labels()) {
      (*file)["labels"][name] = value;
    }
    for (const v1::Rotation& rotation : request.rotations()) {
      (*file)["rotate"][rotation.output()] = rotation.input();
    }
  }

  Status AddPart(const std::string& id, const Part& part, Json* file) {
    HPVMD_ASSIGN_OR_RETURN(const std::string bytes, client_.ExportPart(id, part));
    switch (part.kind()) {
      case Part::KIND_GRAPH:
        return Write("graph.json", bytes);
      case Part::KIND_MODULE: {
        const std::string name = "modules/" + FileName(part.name(), &modules_);
        (*file)["modules"][part.name()] = name;
        return Write(name, bytes);
      }
      case Part::KIND_INPUT:
        return AddInput(part.name(),
                        Tensor{static_cast<ElementType>(part.type()),
                               {part.shape().begin(), part.shape().end()},
                               {bytes.begin(), bytes.end()}},
                        file);
      default:
        return absl::OkStatus();  // A newer server has parts that this program does not know.
    }
  }

  Status AddInput(const std::string& name, const Tensor& tensor, Json* file) {
    HPVMD_ASSIGN_OR_RETURN((*file)["inputs"][name], WriteTensor("inputs/" + FileName(name, &inputs_), tensor));
    return absl::OkStatus();
  }

  Client& client_;
  const std::string folder_;
  std::set<std::string> modules_, inputs_;
};

Status Fill(Client& client, const v1::Job& job, const Options& options, Bundle& bundle) {
  HPVMD_RETURN_IF_ERROR(bundle.WriteRequest(options.job));
  HPVMD_RETURN_IF_ERROR(bundle.Write("record.json", ToJson(job).dump(2) + "\n"));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events, ReadHistory(client, options.job));
  std::string lines;
  for (const v1::JobEvent& event : events) {
    lines += ToJson(event).dump() + "\n";
  }
  HPVMD_RETURN_IF_ERROR(bundle.Write("events.jsonl", lines));
  HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse server, client.ServerInfo());
  HPVMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices, client.ListDevicesAndSandbox());
  const Json where = {{"server", ToJson(server)}, {"devices", ToJson(devices)}};
  HPVMD_RETURN_IF_ERROR(bundle.Write("server.json", where.dump(2) + "\n"));
  const bool has_outputs = job.state() == v1::JOB_STATE_SUCCEEDED && !options.without_outputs && !job.dropped();
  return has_outputs ? bundle.WriteOutputs(job) : absl::OkStatus();
}

Status Collect(const Globals& globals, const Options& options) {
  HPVMD_RETURN_IF_ERROR(CheckIsJob(options.job));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(options.job));
  const std::string folder = options.folder.empty() ? options.job + ".hpvm" : options.folder;
  Bundle bundle(*client, folder);
  HPVMD_RETURN_IF_ERROR(bundle.Make());
  if (const Status filled = Fill(*client, job, options, bundle); !filled.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);  // A partial bundle would look like a complete one.
    return filled;
  }
  printf("%s\n", Printable(folder).c_str());
  return absl::OkStatus();
}
}  // namespace

void AddBundle(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "bundle", "Put a job into a folder: graph, modules, inputs, outputs, record and events",
                 "The folder has a job file. With it `hpvmctl apply FOLDER/job.json` submits the job again, and "
                 "`hpvmctl replay FOLDER`\n"
                 "runs it again and compares: on another server, or on this machine without a server. The folder holds "
                 "the job's data:\n"
                 "give it only to people who may have them.\n"
                 "Examples:\n"
                 "  hpvmctl bundle job-0193…\n"
                 "  hpvmctl bundle job-0193… --output wrong-sum --without-outputs");
  Options& options = SetWork(commands, command, Collect);
  AddWord(command, "job", options.job, "Its id")->required();
  AddWord(command, "--output", options.folder, "The folder to make; default: JOB.hpvm");
  command.add_flag("--without-outputs", options.without_outputs, "Leave out the job's outputs");
}

}  // namespace hpvm::ctl
