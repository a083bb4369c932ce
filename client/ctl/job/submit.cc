// SPDX-License-Identifier: Apache-2.0
// hpvmctl submit and retry: submits jobs, which outlive the command, and follows them until they end unless --detach
// is given.
#include "client/ctl/job/submit.h"

#include <stdio.h>

#include <memory>

#include "client/ctl/graph_options.h"
#include "client/ctl/job/follow.h"
#include "client/ctl/job/submit_each.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/text.h"
#include "client/status/retry.h"

namespace hpvm::ctl {
namespace {

struct SubmitCommand {
  SubmitArguments job;
  AfterwardsOptions afterwards;
  std::string each;

  // The command does not wait for a held job, which continues only when somebody releases it.
  AfterwardsOptions Afterwards() const { return {afterwards.detach || job.held, afterwards.id_file}; }
};

struct RetryArguments {
  GraphOptions options;  // All options except the graph.
  AfterwardsOptions afterwards;
  std::string id;
};

// Makes a job for each line of the file.
StatusOr<std::vector<PreparedJob>> LoadEach(const SubmitCommand& command, const std::string& key) {
  const SubmitArguments& arguments = command.job;
  if (!arguments.array.empty() || !arguments.array_symbol.empty()) {
    return InvalidArgument(
        "--each makes a job for each line, and --array a job for each index: give only one of them.");
  }
  if (arguments.graph.arguments.place.document == "-") {
    return InvalidArgument("With --each the graph must be a file, since every line reads it.");
  }
  HPVMD_RETURN_IF_ERROR(ParseOutputFiles(arguments.graph.arguments.outputs, /*is_many=*/true).status());
  std::vector<PreparedJob> jobs;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<JobLine> lines, ReadJobLines(command.each));
  for (const JobLine& line : lines) {
    SubmitArguments one = arguments;
    one.graph.labels.insert(one.graph.labels.end(), line.labels.begin(), line.labels.end());
    one.name = line.name.empty() ? arguments.name : line.name;
    one.graph.idempotency_key = line.key.empty() ? key + "-" + std::to_string(line.number) : line.key;
    line.AddTo(&one.graph.arguments);
    const std::string where = "line " + std::to_string(line.number);
    HPVMD_ASSIGN_OR_RETURN(jobs.emplace_back(),
                           While(PrepareJob(one), "reading " + where + " of \"" + command.each + "\""));
    jobs.back().where = where;
  }
  return jobs;
}

Status Submit(const Globals& globals, const SubmitCommand& command, ExitCode* code) {
  if (!command.each.empty()) {
    const std::string& given = command.job.graph.idempotency_key;
    const std::string key = given.empty() ? NewIdempotencyKey() : given;
    HPVMD_ASSIGN_OR_RETURN(std::vector<PreparedJob> jobs, LoadEach(command, key));
    return SubmitAll(globals, std::move(jobs), key, command.Afterwards(), code);
  }
  HPVMD_ASSIGN_OR_RETURN(PreparedJob job, PrepareJob(command.job));
  return SubmitOne(globals, std::move(job), command.Afterwards(), code);
}

// Retries the elements of an array that ended without success, each as a job of its own.
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
    // The job has not ended, or its request was dropped: kFailedPrecondition has another exit code elsewhere.
    *code = kUsage;
    Report(submitted.status());
    return absl::OkStatus();
  }
  if (!submitted.ok()) {
    return WithKey(submitted.status(), call.request.idempotency_key());
  }
  return Afterwards(globals, *client, *submitted, arguments.afterwards, follow, code);
}

}  // namespace

void AddSubmit(Commands commands) {
  CLI::App& command = AddCommand(
      commands.app, "submit", "Submit a graph as a job and follow it to its end",
      "Ctrl-C leaves the job running. With --array, FILE of --output has to contain {index}.\n"
      "Examples:\n"
      "  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --output C=c.npy\n"
      "  hpvmctl submit --detach --idempotency-key night-7 --deadline 2h matmul.json --input A=a.npy --input B=b.npy\n"
      "  hpvmctl submit sweep.json --array 0-99%8 --input seed=@index --output r=r-{index}.npy\n"
      "  hpvmctl submit matmul.json --each jobs.jsonl --detach\n"
      "  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --max-wait 1h --max-run 10m\n"
      "  hpvmctl submit sum.json --after array-0193…:ended --input parts=parts.npy\n"
      "  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --needs kind:cpu --host-memory 1MiB");
  SubmitCommand& options = SetWork(commands, command, Submit);
  SubmitArguments& arguments = options.job;
  AddGraphOptions(command, arguments.graph);
  AddAfterwards(command, options.afterwards, arguments.graph.idempotency_key);
  command.add_option("--name", arguments.name, "Name of the job, for people");
  AddEach(command, "--after", arguments.after,
          "Start when these jobs or arrays have succeeded (ID), ended (ID:ended) or failed (ID:failed); separated by "
          "commas");
  AddWord(command, "--array", arguments.array,
          "FIRST-LAST[:STEP][%RUNNING]: a job for each index, at most RUNNING at a time");
  AddWord(command, "--array-symbol", arguments.array_symbol,
          "Symbol that gets the index; `--input NAME=@index` gives the index to an input");
  AddWord(command, "--each", options.each,
          "A job for each line of this file (- is standard input), all sent at once; a line is JSON: "
          "{\"input\": {\"A\": \"a.npy\"}, \"output\": {…}, \"symbol\": {…}, \"graph\", \"name\", \"label\", \"key\"}");
  command
      .add_option("--attempts", arguments.attempts,
                  "How many attempts may be lost with executors and servers; default: the server's")
      ->check(CLI::Range(1, 10));
  AddWord(command, "--max-wait", arguments.wait_max,
          "How long the job may wait once it could start; then it is EXPIRED");
  AddWord(command, "--max-run", arguments.run_max, "How long an attempt may run; then the job fails");
  AddWord(command, "--max-device-time", arguments.device_time_max,
          "How much device time an attempt may take, all devices together; then the job fails");
  AddEach(command, "--needs", arguments.needs,
          "WORD that the host must have, as `hpvmctl cluster hosts -o wide` lists them (kind:gpu, label:lab=a); given "
          "several times: all of them. The job waits while no host of the cluster has them");
  AddWord(command, "--on-host", arguments.host, "Name of the only host of the cluster that may run the job");
  AddWord(command, "--host-memory", arguments.host_memory,
          "Memory of the host, such as 4GiB, that no other job has claimed");
  command.add_flag("--hold", arguments.held, "Hold the job until `hpvmctl release`; prints the id, as --detach does");
}

void AddRetry(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "retry",
                 "Submit a job again with what it was submitted with; of an array, each element that did not succeed",
                 "Examples:\n"
                 "  hpvmctl retry job-0193… --deadline 1h --output C=c.npy\n"
                 "  hpvmctl retry array-0193… --detach");
  RetryArguments& arguments = SetWork(commands, command, Retry);
  command.add_option("job", arguments.id, "The id of a job that has ended, or of an array")->required();
  AddAfterwards(command, arguments.afterwards, arguments.options.idempotency_key);
  AddEach(command, "-O,--output", arguments.options.arguments.outputs, "NAME=FILE for each output to write");
  AddEach(command, "--label", arguments.options.labels, "KEY=VALUE: a label in addition to the first job's");
  AddWord(command, "--deadline", arguments.options.deadline,
          "How long the new job may take; default: the first job's deadline");
  command.add_option("--priority", arguments.options.priority, "Order among your own jobs; default: the first job's")
      ->check(CLI::Range(-100, 100));
}

}  // namespace hpvm::ctl
