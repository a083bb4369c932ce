// SPDX-License-Identifier: Apache-2.0
// hpvmctl submit and retry: jobs that outlive the command; followed until they end unless --detach.
#include <stdio.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "client/ctl/follow.h"
#include "client/ctl/graph_options.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/submit_each.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/text.h"
#include "client/ctl/text/words.h"
#include "client/status/retry.h"

namespace hpvm::ctl {
namespace {

// What submit and retry do with a job that they have made.
struct AfterwardsOptions {
  bool detach = false;
  std::string id_file;
};

struct SubmitArguments {
  GraphOptions graph;
  AfterwardsOptions afterwards;
  std::string name;
  std::vector<std::string> after;
  std::string array;
  std::string array_symbol;
  uint32_t attempts = 0;
  std::string each;
};

struct RetryArguments {
  GraphOptions options;  // Without the graph.
  AfterwardsOptions afterwards;
  std::string id;
};

// A file that cannot be written is found before there is a job whose id it should hold.
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

// Before there is an answer, nobody knows whether there is a job.
void SayKeyWhenInterrupted(const std::string& key) {
  SayWhenInterrupted("\nhpvmctl: interrupted before the server answered; the same command with --idempotency-key " +
                     key + " finds the job if there is one, and never makes a second.\n");
}

Status WithKey(const Status& status, const std::string& key) {
  if (!MayRetry(status)) {
    return status;
  }
  return While(status, "submitting: there may be a job, or none; the same command with --idempotency-key " + key +
                           " finds it or makes it, and never makes two");
}

// Follows what was submitted, or prints its id.
Status Afterwards(const Globals& globals, Client& client, const v1::SubmitResponse& submitted,
                  const AfterwardsOptions& options, const FollowOptions& follow, ExitCode* code) {
  HPVMD_RETURN_IF_ERROR(WriteIdFile(options.id_file, IdOf(submitted)));
  const v1::Job& job = submitted.job();
  if (submitted.existed()) {
    fprintf(stderr, "hpvmctl: the key was used before, by %s, which is %s.\n", Printable(IdOf(submitted)).c_str(),
            StateText(job.state()).c_str());
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
    fprintf(stderr, "hpvmctl: the server has kept nothing else of it.\n");
    ended = ExitCodeOf(job);
  }
  HPVMD_ASSIGN_OR_RETURN(*code, std::move(ended));
  return absl::OkStatus();
}

StatusOr<SubmitOptions> ToSubmitOptions(const SubmitArguments& arguments, const GraphJob& job) {
  SubmitOptions submit;
  HPVMD_ASSIGN_OR_RETURN(submit.call, ToCallOptions(arguments.graph));
  submit.name = arguments.name;
  submit.symbols = job.symbols;
  submit.repetition = job.repetition;
  submit.index_inputs = job.index_inputs;
  submit.attempts_max = arguments.attempts;
  for (const std::string& word : arguments.after) {
    HPVMD_RETURN_IF_ERROR(ParseAfter(word, &submit.after));
  }
  if (!arguments.array.empty()) {
    HPVMD_ASSIGN_OR_RETURN(submit.array, While(ParseArray(arguments.array), "reading --array"));
    submit.array->set_symbol(arguments.array_symbol);
  } else if (!arguments.array_symbol.empty()) {
    return InvalidArgument("--array-symbol (" + arguments.array_symbol + ") needs --array.");
  }
  // Chosen here, so that this command can name it whatever happens.
  if (submit.call.request.idempotency_key().empty()) {
    submit.call.request.set_idempotency_key(NewIdempotencyKey());
  }
  return submit;
}

Status SubmitEach(const Globals& globals, const SubmitArguments& arguments, ExitCode* code);

Status Submit(const Globals& globals, const SubmitArguments& arguments, ExitCode* code) {
  if (!arguments.each.empty()) {
    return SubmitEach(globals, arguments, code);
  }
  GraphArguments graph = arguments.graph.arguments;
  graph.is_array = !arguments.array.empty();
  FollowOptions follow;
  HPVMD_ASSIGN_OR_RETURN(follow.output_files, ParseOutputFiles(graph.outputs, graph.is_array));
  HPVMD_ASSIGN_OR_RETURN(GraphJob job, LoadGraphJob(graph));
  HPVMD_ASSIGN_OR_RETURN(const SubmitOptions submit, ToSubmitOptions(arguments, job));
  HPVMD_RETURN_IF_ERROR(CheckIdFile(arguments.afterwards.id_file));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  const std::string& key = submit.call.request.idempotency_key();
  SayKeyWhenInterrupted(key);
  StatusOr<v1::SubmitResponse> submitted = client->Submit(job.document, job.modules, job.inputs, submit);
  if (!submitted.ok()) {
    return WithKey(submitted.status(), key);
  }
  return Afterwards(globals, *client, *submitted, arguments.afterwards, follow, code);
}

// A job for each line of the file, and what it is called there.
struct EachJobs {
  std::vector<SubmitItem> items;
  std::vector<uint64_t> lines;
  std::vector<std::map<std::string, std::string>> output_files;
};

StatusOr<EachJobs> LoadEach(const SubmitArguments& arguments, const std::string& key) {
  if (!arguments.array.empty() || !arguments.array_symbol.empty()) {
    return InvalidArgument("--each makes a job a line, and --array a job an index: only one of them can be given.");
  }
  if (arguments.graph.arguments.place.document == "-") {
    return InvalidArgument("With --each the graph must be a file, since every line reads it.");
  }
  EachJobs jobs;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<JobLine> lines, ReadJobLines(arguments.each));
  for (const JobLine& line : lines) {
    SubmitArguments one = arguments;
    one.graph.labels.insert(one.graph.labels.end(), line.labels.begin(), line.labels.end());
    one.name = line.name.empty() ? arguments.name : line.name;
    one.graph.idempotency_key = line.key.empty() ? key + "-" + std::to_string(line.number) : line.key;
    line.AddTo(&one.graph.arguments);
    const std::string where = "reading line " + std::to_string(line.number) + " of \"" + arguments.each + "\"";
    HPVMD_ASSIGN_OR_RETURN(GraphJob job, While(LoadGraphJob(one.graph.arguments), where));
    HPVMD_ASSIGN_OR_RETURN(SubmitOptions submit, While(ToSubmitOptions(one, job), where));
    jobs.output_files.push_back(std::move(job.output_files));
    jobs.lines.push_back(line.number);
    jobs.items.push_back({std::move(job.document), std::move(job.modules), std::move(job.inputs), std::move(submit)});
  }
  return jobs;
}

// All lines in one call, or as few as their sizes allow. A line that is refused is named, and the others go on.
Status SubmitEach(const Globals& globals, const SubmitArguments& arguments, ExitCode* code) {
  const std::string& given = arguments.graph.idempotency_key;
  const std::string key = given.empty() ? NewIdempotencyKey() : given;
  FollowOptions follow;
  HPVMD_RETURN_IF_ERROR(ParseOutputFiles(arguments.graph.arguments.outputs, /*is_many=*/true).status());
  HPVMD_ASSIGN_OR_RETURN(const EachJobs jobs, LoadEach(arguments, key));
  HPVMD_RETURN_IF_ERROR(CheckIdFile(arguments.afterwards.id_file));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  SayKeyWhenInterrupted(key);
  const std::vector<StatusOr<v1::SubmitResponse>> submitted = client->SubmitMany(jobs.items, TracedCall());
  std::vector<std::string> ids;
  std::string text;
  for (size_t i = 0; i < submitted.size(); ++i) {
    if (!submitted[i].ok()) {
      const ExitCode failed =
          Report(While(WithKey(submitted[i].status(), key), "submitting line " + std::to_string(jobs.lines[i])));
      *code = *code == kOk ? failed : *code;
      continue;
    }
    ids.push_back(submitted[i]->job().id());
    text += (text.empty() ? "" : "\n") + ids.back();
    follow.output_files_of[ids.back()] = jobs.output_files[i];
    if (arguments.afterwards.detach) {
      PrintSubmitted(*submitted[i], globals.format);
    }
  }
  HPVMD_RETURN_IF_ERROR(WriteIdFile(arguments.afterwards.id_file, text));
  if (arguments.afterwards.detach || ids.empty()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const ExitCode ended,
                         FollowAll(globals, *client, ids.front() + (ids.size() > 1 ? " ..." : ""), ids, follow));
  *code = *code == kOk ? ended : *code;
  return absl::OkStatus();
}

// An array's elements that ended without success, each as a job of its own.
Status RetryArray(const Globals& globals, Client& client, const RetryArguments& arguments, CallOptions call,
                  const FollowOptions& follow, ExitCode* code) {
  v1::ListJobsRequest request;
  request.set_array_id(arguments.id);
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> elements, client.ListAllJobs(request, UINT32_MAX));
  if (elements.empty()) {
    return NotFound("There is no array \"" + arguments.id + "\".");
  }
  const std::string key = call.request.idempotency_key();
  std::vector<std::string> ids;
  for (const v1::Job& job : elements) {
    if (!HasEnded(job) || job.state() == v1::JOB_STATE_SUCCEEDED) {
      continue;
    }
    call.request.set_idempotency_key(key + "-" + std::to_string(job.array_index()));
    StatusOr<v1::SubmitResponse> submitted = client.RetryJob(job.id(), call);
    if (!submitted.ok()) {
      return WithKey(While(submitted.status(), "retrying element " + std::to_string(job.array_index())), key);
    }
    ids.push_back(submitted->job().id());
  }
  std::string lines;
  for (const std::string& id : ids) {
    lines += (lines.empty() ? "" : "\n") + id;
  }
  HPVMD_RETURN_IF_ERROR(WriteIdFile(arguments.afterwards.id_file, lines));
  if (ids.empty()) {
    fprintf(stderr, "hpvmctl: no element of %s has ended without success.\n", Printable(arguments.id).c_str());
    return absl::OkStatus();
  }
  if (arguments.afterwards.detach) {
    puts(lines.c_str());
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(*code, FollowAll(globals, client, ids.front() + (ids.size() > 1 ? " ..." : ""), ids, follow));
  return absl::OkStatus();
}

Status Retry(const Globals& globals, const RetryArguments& arguments, ExitCode* code) {
  const bool is_array = arguments.id.starts_with("array-");
  FollowOptions follow;
  HPVMD_ASSIGN_OR_RETURN(follow.output_files, ParseOutputFiles(arguments.options.arguments.outputs, is_array));
  HPVMD_ASSIGN_OR_RETURN(CallOptions call, ToCallOptions(arguments.options));
  HPVMD_RETURN_IF_ERROR(CheckIdFile(arguments.afterwards.id_file));
  if (call.request.idempotency_key().empty()) {
    call.request.set_idempotency_key(NewIdempotencyKey());
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  SayKeyWhenInterrupted(call.request.idempotency_key());
  if (is_array) {
    return RetryArray(globals, *client, arguments, std::move(call), follow, code);
  }
  StatusOr<v1::SubmitResponse> submitted = client->RetryJob(arguments.id, call);
  if (submitted.status().code() == absl::StatusCode::kFailedPrecondition) {
    *code = kUsage;  // It has not ended, or its request was dropped: not what this code means elsewhere.
    Report(submitted.status());
    return absl::OkStatus();
  }
  if (!submitted.ok()) {
    return WithKey(submitted.status(), call.request.idempotency_key());
  }
  return Afterwards(globals, *client, *submitted, arguments.afterwards, follow, code);
}

void AddAfterwards(CLI::App& command, AfterwardsOptions& options, std::string& key) {
  command.add_flag("-d,--detach", options.detach, "Print the id and leave it running");
  AddWord(command, "--id-file", options.id_file, "Write the id here before following");
  AddWord(command, "--idempotency-key", key,
          "Submitting again with the same key answers the first job; without one, a random key");
}

}  // namespace

void AddSubmit(Commands commands) {
  CLI::App& command = AddCommand(
      commands.app, "submit", "Submit a graph as a job and follow it to its end",
      "Ctrl-C leaves the job running. FILE of an array's --output holds {index}.\n"
      "Examples:\n"
      "  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --output C=c.npy\n"
      "  hpvmctl submit --detach --idempotency-key night-7 --deadline 2h matmul.json --input A=a.npy --input B=b.npy\n"
      "  hpvmctl submit sweep.json --array 0-99%8 --input seed=@index --output r=r-{index}.npy\n"
      "  hpvmctl submit matmul.json --each jobs.jsonl --detach\n"
      "  hpvmctl submit sum.json --after array-0193…:ended --input parts=parts.npy");
  SubmitArguments& arguments = SetWork(commands, command, Submit);
  AddGraphOptions(command, arguments.graph);
  AddAfterwards(command, arguments.afterwards, arguments.graph.idempotency_key);
  command.add_option("--name", arguments.name, "A name for people");
  AddEach(command, "--after", arguments.after,
          "Start when these have succeeded: ID, ID:ended, ID:failed; jobs or arrays, with commas");
  AddWord(command, "--array", arguments.array,
          "FIRST-LAST[:STEP][%RUNNING]: a job for each index, at most RUNNING at a time");
  AddWord(command, "--array-symbol", arguments.array_symbol,
          "A symbol that has the index; `--input NAME=@index` gives it to an input");
  AddWord(command, "--each", arguments.each,
          "A job for each line of this file (- is standard input), all sent at once; a line is JSON: "
          "{\"input\": {\"A\": \"a.npy\"}, \"output\": {…}, \"symbol\": {…}, \"graph\", \"name\", \"label\", \"key\"}");
  command
      .add_option("--attempts", arguments.attempts,
                  "Attempts that may be lost with executors and servers; default: the server's")
      ->check(CLI::Range(1, 10));
}

void AddRetry(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "retry",
                 "Submit again what a job was submitted with; of an array, each element that did not succeed",
                 "Examples:\n"
                 "  hpvmctl retry job-0193… --deadline 1h --output C=c.npy\n"
                 "  hpvmctl retry array-0193… --detach");
  RetryArguments& arguments = SetWork(commands, command, Retry);
  command.add_option("job", arguments.id, "The id of a job that has ended, or of an array")->required();
  AddAfterwards(command, arguments.afterwards, arguments.options.idempotency_key);
  AddEach(command, "-O,--output", arguments.options.arguments.outputs, "NAME=FILE for each output to write");
  AddEach(command, "--label", arguments.options.labels, "KEY=VALUE, besides the first job's");
  AddWord(command, "--deadline", arguments.options.deadline, "How long it may take; default: as before");
  command.add_option("--priority", arguments.options.priority, "Default: as before")->check(CLI::Range(-100, 100));
}

}  // namespace hpvm::ctl
