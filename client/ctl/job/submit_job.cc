// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include <fstream>
#include <memory>

#include "client/ctl/job/follow.h"
#include "client/ctl/job/submit.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/quota_words.h"
#include "client/ctl/text/text.h"
#include "client/status/retry.h"

namespace hpvm::ctl {
namespace {

StatusOr<v1::JobLimits> ToLimits(const SubmitArguments& arguments) {
  v1::JobLimits limits;
  const auto read = [](const std::string& word, const char* option, uint64_t* into) -> Status {
    if (!word.empty()) {
      HPVMD_ASSIGN_OR_RETURN(const Duration most, While(ParseDuration(word), std::string("reading ") + option));
      *into = static_cast<uint64_t>(most.count());
    }
    return absl::OkStatus();
  };
  uint64_t wait_ns = 0, run_ns = 0, device_ns = 0;
  HPVMD_RETURN_IF_ERROR(read(arguments.wait_max, "--max-wait", &wait_ns));
  HPVMD_RETURN_IF_ERROR(read(arguments.run_max, "--max-run", &run_ns));
  HPVMD_RETURN_IF_ERROR(read(arguments.device_time_max, "--max-device-time", &device_ns));
  limits.set_wait_ns(wait_ns);
  limits.set_run_ns(run_ns);
  limits.set_device_ns(device_ns);
  return limits;
}

StatusOr<v1::HostNeeds> ToHostNeeds(const SubmitArguments& arguments) {
  v1::HostNeeds needs;
  needs.mutable_words()->Assign(arguments.needs.begin(), arguments.needs.end());
  needs.set_host(arguments.host);
  if (!arguments.host_memory.empty()) {
    HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, While(ParseBytes(arguments.host_memory), "reading --host-memory"));
    needs.set_memory_bytes(bytes);
  }
  return needs;
}

StatusOr<SubmitOptions> ToSubmitOptions(const SubmitArguments& arguments, const GraphJob& job) {
  SubmitOptions submit;
  HPVMD_ASSIGN_OR_RETURN(submit.call, ToCallOptions(arguments.graph));
  submit.name = arguments.name;
  submit.symbols = job.symbols;
  submit.repetition = job.repetition;
  submit.index_inputs = job.index_inputs;
  submit.attempts_max = arguments.attempts;
  submit.held = arguments.held;
  HPVMD_ASSIGN_OR_RETURN(submit.limits, ToLimits(arguments));
  HPVMD_ASSIGN_OR_RETURN(submit.host_needs, ToHostNeeds(arguments));
  for (const std::string& word : arguments.after) {
    HPVMD_RETURN_IF_ERROR(ParseAfter(word, &submit.after));
  }
  if (!arguments.array.empty()) {
    HPVMD_ASSIGN_OR_RETURN(submit.array, While(ParseArray(arguments.array), "reading --array"));
    submit.array->set_symbol(arguments.array_symbol);
  } else if (!arguments.array_symbol.empty()) {
    return InvalidArgument("--array-symbol (" + arguments.array_symbol + ") needs --array.");
  }
  // Chosen here, so that this command can name the key whatever happens.
  if (submit.call.request.idempotency_key().empty()) {
    submit.call.request.set_idempotency_key(NewIdempotencyKey());
  }
  return submit;
}

// Returns the response for each job and moves their tensors out. An array is sent alone, because it may become many
// jobs.
std::vector<StatusOr<v1::SubmitResponse>> SendAll(Client& client, std::vector<PreparedJob>& jobs) {
  std::vector<SubmitItem> singles;
  std::vector<size_t> arrays;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].item.options.array.has_value()) {
      arrays.push_back(i);
    } else {
      singles.push_back(std::move(jobs[i].item));
    }
  }
  std::vector<StatusOr<v1::SubmitResponse>> answers = client.SubmitMany(singles, TracedCall());
  for (const size_t i : arrays) {
    const SubmitItem& item = jobs[i].item;
    answers.insert(answers.begin() + static_cast<ptrdiff_t>(i),
                   client.Submit(item.document, item.modules, item.inputs, item.options));
  }
  return answers;
}

}  // namespace

Status CheckIdFile(const std::string& file) {
  if (file.empty()) {
    return absl::OkStatus();
  }
  std::ofstream stream(file, std::ios::app);
  return stream ? absl::OkStatus() : NotFound("The file \"" + file + "\" (--id-file) cannot be written.");
}

Status WriteIdFile(const std::string& file, const std::string& id) {
  if (file.empty()) {
    return absl::OkStatus();
  }
  std::ofstream stream(file, std::ios::trunc);
  stream << id << "\n";
  stream.close();
  return stream ? absl::OkStatus() : Internal("The file \"" + file + "\" cannot be written; the job is " + id + ".");
}

void SayKeyWhenInterrupted(const std::string& key) {
  SayWhenInterrupted("\nhpvmctl: interrupted before the server answered; the same command with --idempotency-key " +
                     key + " finds the job if the server has it, and never makes a second one.\n");
}

Status WithKey(const Status& status, const std::string& key) {
  if (!MayRetry(status)) {
    return status;
  }
  return While(status, "submitting: the server may or may not have the job; the same command with --idempotency-key " +
                           key + " finds the job or makes it, and never makes a second one");
}

Status Afterwards(const Globals& globals, Client& client, const v1::SubmitResponse& submitted,
                  const AfterwardsOptions& options, const FollowOptions& follow, ExitCode* code) {
  HPVMD_RETURN_IF_ERROR(WriteIdFile(options.id_file, IdOf(submitted)));
  const v1::Job& job = submitted.job();
  if (submitted.existed()) {
    fprintf(stderr, "hpvmctl: the idempotency key was used before, by %s, which is %s.\n",
            Printable(IdOf(submitted)).c_str(), StateText(job.state()).c_str());
  }
  if (options.detach) {
    PrintSubmitted(submitted, globals.format);
    return absl::OkStatus();
  }
  const bool is_array = !job.array_id().empty();
  std::vector<std::string> elements(submitted.array_job_ids().begin(), submitted.array_job_ids().end());
  if (is_array && elements.empty()) {
    HPVMD_ASSIGN_OR_RETURN(elements, client.ArrayJobs(job.array_id()));
  }
  StatusOr<ExitCode> ended = is_array ? FollowAll(globals, client, job.array_id(), elements, follow)
                                      : FollowJob(globals, client, job.id(), follow);
  if (ended.status().code() == absl::StatusCode::kNotFound && submitted.existed() && HasEnded(job)) {
    fprintf(stderr, "hpvmctl: the server has kept nothing else of that job.\n");
    ended = ExitCodeOf(job);
  }
  HPVMD_ASSIGN_OR_RETURN(*code, std::move(ended));
  return absl::OkStatus();
}

void AddAfterwards(CLI::App& command, AfterwardsOptions& options, std::string& key) {
  command.add_flag("-d,--detach", options.detach, "Print the id and leave the job running");
  AddWord(command, "--id-file", options.id_file, "Write the id to this file before following the job");
  AddWord(command, "--idempotency-key", key,
          "Submitting again with the same key returns the first job instead of making another; default: a random key");
}

StatusOr<PreparedJob> PrepareJob(const SubmitArguments& arguments) {
  GraphArguments graph = arguments.graph.arguments;
  graph.is_array = !arguments.array.empty();
  PreparedJob prepared;
  HPVMD_ASSIGN_OR_RETURN(prepared.output_files, ParseOutputFiles(graph.outputs, graph.is_array));
  HPVMD_ASSIGN_OR_RETURN(GraphJob job, LoadGraphJob(graph));
  HPVMD_ASSIGN_OR_RETURN(prepared.item.options, ToSubmitOptions(arguments, job));
  prepared.graph = job.graph.name;
  prepared.item.document = std::move(job.document);
  prepared.item.modules = std::move(job.modules);
  prepared.item.inputs = std::move(job.inputs);
  return prepared;
}

Status SubmitOne(const Globals& globals, PreparedJob job, const AfterwardsOptions& afterwards, ExitCode* code) {
  HPVMD_RETURN_IF_ERROR(CheckIdFile(afterwards.id_file));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  const std::string& key = job.item.options.call.request.idempotency_key();
  SayKeyWhenInterrupted(key);
  const StatusOr<v1::SubmitResponse> submitted =
      client->Submit(job.item.document, job.item.modules, job.item.inputs, job.item.options);
  if (!submitted.ok()) {
    return WithKey(submitted.status(), key);
  }
  FollowOptions follow;
  follow.output_files = std::move(job.output_files);
  return Afterwards(globals, *client, *submitted, afterwards, follow, code);
}

Status SubmitAll(const Globals& globals, std::vector<PreparedJob> jobs, const std::string& key,
                 const AfterwardsOptions& afterwards, ExitCode* code) {
  HPVMD_RETURN_IF_ERROR(CheckIdFile(afterwards.id_file));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  SayKeyWhenInterrupted(key);
  const std::vector<StatusOr<v1::SubmitResponse>> submitted = SendAll(*client, jobs);
  FollowOptions follow;
  std::vector<std::string> ids;
  std::string text;
  for (size_t i = 0; i < submitted.size(); ++i) {
    if (!submitted[i].ok()) {
      const ExitCode failed = Report(While(WithKey(submitted[i].status(), key), "submitting " + jobs[i].where));
      *code = *code == kOk ? failed : *code;
      continue;
    }
    text += (text.empty() ? "" : "\n") + IdOf(*submitted[i]);
    std::vector<std::string> made(submitted[i]->array_job_ids().begin(), submitted[i]->array_job_ids().end());
    if (made.empty() && !submitted[i]->job().array_id().empty()) {
      HPVMD_ASSIGN_OR_RETURN(made, client->ArrayJobs(submitted[i]->job().array_id()));
    } else if (made.empty()) {
      made.push_back(submitted[i]->job().id());
    }
    for (const std::string& id : made) {
      ids.push_back(id);
      follow.output_files_of[id] = jobs[i].output_files;
    }
    if (afterwards.detach) {
      PrintSubmitted(*submitted[i], globals.format);
    }
  }
  HPVMD_RETURN_IF_ERROR(WriteIdFile(afterwards.id_file, text));
  if (afterwards.detach || ids.empty()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const ExitCode ended,
                         FollowAll(globals, *client, ids.front() + (ids.size() > 1 ? " ..." : ""), ids, follow));
  *code = *code == kOk ? ended : *code;
  return absl::OkStatus();
}

}  // namespace hpvm::ctl
