// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/client.h"

#include <algorithm>
#include <utility>

namespace hpvm::server::sim {
namespace {

constexpr uint32_t kTriesMax = 40;

void Bind(v1::SubmitRequest& request, const std::string& name, v1::ElementType type, const std::string& bytes,
          bool is_scalar) {
  v1::InputBinding& input = *request.add_inputs();
  input.set_name(name);
  input.mutable_tensor()->set_type(type);
  if (!is_scalar) {
    input.mutable_tensor()->add_shape(bytes.size());
  }
  input.mutable_tensor()->set_data(bytes);
}

}  // namespace

SimClient::SimClient(Context& context, Network& network, Frontend& frontend, History& history, Board& board,
                     std::string tenant, uint32_t number)
    : context_(context),
      network_(network),
      frontend_(frontend),
      history_(history),
      board_(board),
      tenant_(std::move(tenant)),
      name_("client " + tenant_ + "." + std::to_string(number)),
      rng_(context.RngFor(name_)),
      actions_left_(context.plan.actions_per_client) {}

void SimClient::Begin() { ScheduleNext(); }

void SimClient::ScheduleNext() {
  if (actions_left_ == 0) {
    return;
  }
  const auto mean_us = static_cast<uint64_t>(context_.plan.pause_mean.count()) / 1'000;
  context_.events.After(Microseconds(rng_.Below(2 * mean_us + 1)), 0, [this] {
    // An action that is impossible now counts as done, because the number of actions is fixed.
    --actions_left_;
    Act();
    ScheduleNext();
  });
}

void SimClient::Act() {
  const Plan& plan = context_.plan;
  const std::pair<uint32_t, void (SimClient::*)()> actions[] = {
      {plan.submit, &SimClient::SubmitSomething}, {plan.arrays, &SimClient::SubmitArray},
      {plan.after, &SimClient::SubmitAfter},      {plan.buffers, &SimClient::SubmitWithBuffer},
      {plan.retry, &SimClient::RetrySomething},   {plan.reuse_key, &SimClient::ReuseKey},
      {plan.cancel, &SimClient::CancelSomething}, {plan.read, &SimClient::ReadSomething},
      {plan.list, &SimClient::ListSomething},     {plan.watch, &SimClient::WatchSomething},
      {plan.fetch, &SimClient::FetchSomething},   {plan.run, &SimClient::RunSomething},
  };
  uint64_t sum = 0;
  for (const auto& [weight, action] : actions) {
    sum += weight;
  }
  uint64_t drawn = rng_.Below(sum);
  for (const auto& [weight, action] : actions) {
    if (drawn < weight) {
      (this->*action)();
      return;
    }
    drawn -= weight;
  }
}

// The same number means the same document: submits share graphs.
GraphSpec SimClient::DrawGraph(bool with_index, bool with_buffer) {
  const Plan& plan = context_.plan;
  SeededRng rng(context_.seed * 1'000 + rng_.Below(plan.graphs) * 4 + (with_index ? 1 : 0) + (with_buffer ? 2 : 0));
  GraphSpec graph;
  graph.number = rng.Next() >> 40;
  graph.has_index = with_index;
  graph.has_buffer = with_buffer;
  graph.outputs = with_buffer || Chance(rng, 700) ? 1 : 2;
  const bool is_big = Chance(rng, plan.big);
  graph.output_bytes = is_big ? (Chance(rng, 300) ? 300'000 : Between(rng, 33'000, 60'000)) : Between(rng, 8, 200);
  graph.traps = Chance(rng, plan.traps);
  graph.is_invalid = !graph.traps && Chance(rng, plan.invalid);
  graph.uses_gpu = plan.has_gpu && Chance(rng, 500);
  graph.takes = Chance(rng, plan.slow) ? Milliseconds(Between(rng, 50, 3'000)) : Microseconds(rng.Below(20'000));
  return graph;
}

Submission& SimClient::MakeSubmission(bool with_index) {
  Submission& submission = history_.NewSubmission();
  submission.tenant = tenant_;
  submission.token = board_.next_token++;
  submission.graph = DrawGraph(with_index, false);
  const uint64_t bytes = Chance(rng_, context_.plan.big) ? Between(rng_, 30'000, 50'000) : Between(rng_, 8, 64);
  submission.inputs["x"] = PayloadOf(submission.token, bytes);
  v1::SubmitRequest& request = submission.request;
  request.mutable_document()->set_graph_sha256(ToHex(HashOf(submission.graph.Document())));
  request.set_name("t" + std::to_string(submission.token));
  Bind(request, "x", v1::ELEMENT_TYPE_U8, submission.inputs["x"], false);
  SetOptions(submission, Chance(rng_, context_.plan.keyed));
  return submission;
}

void SimClient::SetOptions(Submission& submission, bool needs_key) {
  v1::RequestOptions& options = *submission.request.mutable_options();
  if (needs_key) {
    submission.key = "key-" + std::to_string(board_.next_key++);
    options.set_idempotency_key(submission.key);
  }
  if (Chance(rng_, 200)) {
    options.set_priority(static_cast<int32_t>(rng_.Below(201)) - 100);
  }
  if (Chance(rng_, context_.plan.short_deadline)) {
    options.set_deadline_ns(Between(rng_, 1'000'000, 3'000'000'000));
  }
  if (Chance(rng_, 300)) {
    submission.request.mutable_retry()->set_attempts_max(static_cast<uint32_t>(Between(rng_, 1, 10)));
  }
}

void SimClient::SubmitSomething() {
  Submission& submission = MakeSubmission(Chance(rng_, 200));
  if (submission.graph.has_index) {
    Bind(submission.request, "i", v1::ELEMENT_TYPE_U64, IndexBytes(0), true);
  }
  Send(std::make_shared<Sending>(Sending{&submission}));
}

void SimClient::SubmitArray() {
  Submission& submission = MakeSubmission(true);
  submission.is_array = true;
  submission.first = rng_.Below(5);
  submission.step = Between(rng_, 1, 3);
  submission.count = Between(rng_, 1, std::min<uint64_t>(8, context_.plan.config.jobs_array_max));
  v1::JobArray& array = *submission.request.mutable_array();
  array.set_first(submission.first);
  array.set_last(submission.first + (submission.count - 1) * submission.step);
  array.set_step(static_cast<uint64_t>(submission.step));
  if (Chance(rng_, 500)) {
    array.set_running_max(static_cast<uint32_t>(Between(rng_, 1, 3)));
  }
  v1::InputBinding& input = *submission.request.add_inputs();
  input.set_name("i");
  input.set_array_index(true);
  if (Chance(rng_, 200)) {
    AddAfter(submission);
  }
  Send(std::make_shared<Sending>(Sending{&submission}));
}

void SimClient::AddAfter(Submission& submission) {
  for (uint64_t i = Between(rng_, 1, 3); i > 0; --i) {
    if (const Board::Known* known = AnyKnown(true)) {
      v1::JobDependency& dependency = *submission.request.add_after();
      dependency.set_job_id(known->id);
      dependency.set_condition(static_cast<v1::JobDependency::Condition>(Chance(rng_, 600) ? 1 : rng_.Below(4)));
    }
  }
}

void SimClient::SubmitAfter() {
  Submission& submission = MakeSubmission(false);
  AddAfter(submission);
  Send(std::make_shared<Sending>(Sending{&submission}));
}

// Takes "b" from a buffer, and "y" goes into the same, another or no buffer. A buffer serves one job at a time, so
// that its contents are known afterwards.
void SimClient::SubmitWithBuffer() {
  Submission& submission = MakeSubmission(false);
  submission.graph = DrawGraph(false, true);
  submission.request.mutable_document()->set_graph_sha256(ToHex(HashOf(submission.graph.Document())));
  const bool writes = Chance(rng_, 600), in_place = writes && Chance(rng_, 500);
  const std::string bytes = PayloadOf(rng_.Next(), submission.graph.output_bytes);
  ++pending_;
  PutGraph(submission.graph, [this, &submission, bytes, writes, in_place] {
    if (submission.incarnation != 0) {
      return;  // A repeated response.
    }
    submission.incarnation = context_.incarnation;
    network_.ToServer(false, [this, &submission, bytes, writes, in_place](SimDaemon& daemon) {
      const StatusOr<std::string> source = frontend_.MakeBuffer(daemon, tenant_, bytes);
      const StatusOr<std::string> target =
          !writes || in_place ? source
                              : frontend_.MakeBuffer(daemon, tenant_, std::string(submission.graph.output_bytes, '-'));
      if (!source.ok() || !target.ok()) {
        return;
      }
      buffers_[*source] = {*source, bytes, true};
      v1::InputBinding& input = *submission.request.add_inputs();
      input.set_name("b");
      input.mutable_buffer()->set_buffer_id(*source);
      submission.inputs["b"] = bytes;
      submission.incarnation = context_.incarnation;
      if (writes) {
        v1::OutputBinding& output = *submission.request.add_outputs();
        output.set_name("y");
        output.set_buffer_id(*target);
        submission.buffer = *target;
        buffers_.try_emplace(*target, Buffer{*target, std::string(submission.graph.output_bytes, '-'), true});
      }
      Send(std::make_shared<Sending>(Sending{&submission}));
    });
  });
  context_.events.After(Milliseconds(100), 0, [this] { --pending_; });
}

void SimClient::RetrySomething() {
  if (board_.acknowledged.empty()) {
    return;
  }
  const Submission& earlier = *board_.acknowledged[rng_.Below(board_.acknowledged.size())];
  // The code that watches the buffer expects known contents.
  if (earlier.tenant != tenant_ || (!earlier.buffer.empty() && earlier.incarnation == context_.incarnation)) {
    return;
  }
  const size_t element = rng_.Below(earlier.ids.size());
  Submission& submission = history_.NewSubmission();
  submission.tenant = tenant_;
  submission.token = earlier.token;
  submission.graph = earlier.graph;
  submission.inputs = earlier.inputs;
  submission.first = earlier.first + element * earlier.step;
  submission.retry_of = earlier.ids[element];
  submission.incarnation = earlier.incarnation;
  submission.buffer = earlier.buffer;
  if (Chance(rng_, context_.plan.keyed)) {
    submission.key = "retry-" + std::to_string(board_.next_key++);
  }
  Send(std::make_shared<Sending>(Sending{&submission}));
}

void SimClient::ReuseKey() {
  std::vector<const Submission*> mine;
  for (const Submission* submission : board_.acknowledged) {
    if (submission->tenant == tenant_ && !submission->key.empty() && submission->retry_of.empty()) {
      mine.push_back(submission);
    }
  }
  if (mine.empty()) {
    return;
  }
  Submission& submission = MakeSubmission(false);
  submission.key = mine[rng_.Below(mine.size())]->key;
  submission.request.mutable_options()->set_idempotency_key(submission.key);
  Send(std::make_shared<Sending>(Sending{&submission}));
}

void SimClient::PutGraph(const GraphSpec& graph, std::function<void()> then) {
  network_.ToServer(false, [this, graph, then = std::move(then)](SimDaemon& daemon) {
    frontend_.PutGraph(daemon, tenant_, graph.Document(), [this, then](const Status& status) {
      if (status.ok()) {
        network_.ToClient(then);
      }
    });
  });
}

void SimClient::Send(const SendingRef& sending) {
  if (!std::exchange(sending->began, true)) {
    ++pending_;
    ++board_.unanswered;
  }
  if (sending->over) {
    return;
  }
  Submission& submission = *sending->submission;
  if (++sending->tries > kTriesMax) {
    Finish(sending);
    return;
  }
  const bool may_repeat = !submission.key.empty();
  const uint32_t tried = sending->tries;
  network_.ToServer(may_repeat, [this, sending, tried](SimDaemon& daemon) {
    frontend_.Submit(
        daemon, *sending->submission,
        [this, sending, tried](const Outcome& outcome, const v1::SubmitResponse& response) {
          network_.ToClient([this, sending, tried, outcome, response] { OnReply(sending, tried, outcome, response); });
        });
  });
  const uint64_t timer = ++sending->timer;
  const Duration patience = Milliseconds(Between(rng_, 50, 1'000) * std::min<uint32_t>(sending->tries, 8));
  context_.events.After(patience, 0, [this, sending, timer] {
    if (sending->timer != timer) {
      return;
    }
    if (sending->submission->key.empty()) {
      Finish(sending);  // It is unknown whether the request arrived.
    } else {
      Send(sending);
    }
  });
}

void SimClient::Finish(const SendingRef& sending) {
  if (!std::exchange(sending->over, true)) {
    --pending_;
    --board_.unanswered;
  }
}

void SimClient::SendLater(const SendingRef& sending) {
  const uint64_t timer = ++sending->timer;
  context_.events.After(Milliseconds(Between(rng_, 10, 500)), 0, [this, sending, timer] {
    if (sending->timer == timer) {
      Send(sending);
    }
  });
}

void SimClient::OnReply(const SendingRef& sending, uint32_t tried, const Outcome& outcome,
                        const v1::SubmitResponse& response) {
  Submission& submission = *sending->submission;
  if (sending->over || (!outcome.ok() && tried <= std::exchange(sending->refused, std::max(tried, sending->refused)))) {
    return;  // A repeated refusal counts once.
  }
  if (outcome.ok()) {
    Finish(sending);
    if (submission.acknowledged()) {
      board_.acknowledged.push_back(&submission);
      for (const std::string& id : submission.ids) {
        board_.known.push_back({tenant_, id});
      }
      if (submission.is_array) {
        board_.known.push_back({tenant_, submission.array_id});
      }
      if (!submission.buffer.empty() && submission.retry_of.empty()) {
        WatchBuffer(submission.buffer, submission);
      }
    }
    return;
  }
  if (absl::IsNotFound(outcome.status) && submission.retry_of.empty()) {
    // Uploads are lost with the daemon. A refused request has consumed nothing: it may be sent again, even without a
    // key. Only once, even if the response to the upload is repeated.
    PutGraph(submission.graph, [this, sending, was_sent = std::make_shared<bool>(false)] {
      if (!std::exchange(*was_sent, true)) {
        SendLater(sending);
      }
    });
    return;
  }
  if (absl::IsUnavailable(outcome.status) || absl::IsResourceExhausted(outcome.status)) {
    SendLater(sending);
    return;
  }
  Finish(sending);
}

const Board::Known* SimClient::AnyKnown(bool own) {
  if (board_.known.empty()) {
    return nullptr;
  }
  // Mostly recent jobs, where more can go wrong.
  const size_t window = std::min<size_t>(board_.known.size(), Chance(rng_, 700) ? 8 : 1'000);
  const Board::Known* known = &board_.known[board_.known.size() - 1 - rng_.Below(window)];
  return own && known->tenant != tenant_ ? nullptr : known;
}

void SimClient::CancelSomething() {
  const Board::Known* known = AnyKnown(false);
  if (known != nullptr && (known->tenant == tenant_ || Chance(rng_, 300))) {
    AskCancel(known->id, 0);
  }
}

void SimClient::AskCancel(const std::string& id, uint32_t tries) {
  auto answered = std::make_shared<bool>(false);
  network_.ToServer(true, [this, id, answered](SimDaemon& daemon) {
    frontend_.Cancel(daemon, tenant_, id,
                     [this, answered](const Status& status) { network_.ToClient([answered] { *answered = true; }); });
  });
  if (tries < 3) {
    ++pending_;
    context_.events.After(Milliseconds(Between(rng_, 50, 500)), 0, [this, id, tries, answered] {
      --pending_;
      if (!*answered) {
        AskCancel(id, tries + 1);
      }
    });
  }
}

void SimClient::ReadSomething() {
  if (const Board::Known* known = AnyKnown(false)) {
    network_.ToServer(true, [this, id = known->id](SimDaemon& daemon) {
      frontend_.GetJob(daemon, tenant_, id, [](const Status&, const v1::Job&) {});
    });
  }
}

void SimClient::ListSomething() {
  v1::ListJobsRequest request;
  request.set_page_size(static_cast<uint32_t>(Between(rng_, 1, 20)));
  if (Chance(rng_, 300)) {
    request.add_states(Chance(rng_, 500) ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_QUEUED);
  }
  network_.ToServer(true, [this, request](SimDaemon& daemon) { frontend_.ListJobs(daemon, tenant_, request); });
}

void SimClient::WatchSomething() {
  if (const Board::Known* known = AnyKnown(false)) {
    network_.ToServer(false, [this, id = known->id](SimDaemon& daemon) {
      frontend_.Watch(daemon, tenant_, id, [](const Status&, const v1::Job&) {});
    });
  }
}

void SimClient::FetchSomething() {
  if (const Board::Known* known = AnyKnown(false)) {
    const std::string name = Chance(rng_, 800) ? "y" : "z";
    network_.ToServer(true,
                      [this, id = known->id, name](SimDaemon& daemon) { frontend_.Fetch(daemon, tenant_, id, name); });
  }
}

void SimClient::RunSomething() {
  const GraphSpec graph = DrawGraph(false, false);
  const auto run = [this, graph](SimDaemon& daemon, const std::string& handle) {
    frontend_.Run(daemon, tenant_, handle, graph, board_.next_run++, [](const Status&) {});
  };
  if (const auto handle = handles_.find(graph.number); handle != handles_.end()) {
    network_.ToServer(false, [run, id = handle->second](SimDaemon& daemon) { run(daemon, id); });
    return;
  }
  PutGraph(graph, [this, graph, run] {
    network_.ToServer(false, [this, graph, run](SimDaemon& daemon) {
      frontend_.Prepare(daemon, tenant_, ToHex(HashOf(graph.Document())),
                        [this, graph, run](const Status& status, const std::string& handle) {
                          if (status.ok()) {
                            network_.ToClient([this, graph, handle] { handles_[graph.number] = handle; });
                            network_.ToServer(false, [run, handle](SimDaemon& later) { run(later, handle); });
                          }
                        });
    });
  });
}

// Asks periodically whether the job that writes the buffer has ended.
void SimClient::WatchBuffer(const std::string& buffer, const Submission& submission) {
  context_.events.After(Milliseconds(Between(rng_, 50, 500)), 0, [this, buffer, &submission] {
    if (buffers_.count(buffer) == 0) {
      return;  // The daemon that had it is gone.
    }
    WatchBuffer(buffer, submission);
    network_.ToServer(true, [this, buffer, &submission](SimDaemon& daemon) {
      if (buffers_.count(buffer) != 0 && submission.incarnation == context_.incarnation) {
        frontend_.GetJob(daemon, tenant_, submission.ids[0],
                         [this, &daemon, buffer, &submission](const Status& status, const v1::Job& job) {
                           if (status.ok() && IsTerminal(job.state())) {
                             CheckBuffer(daemon, buffer, submission, job.state());
                           }
                         });
      }
    });
  });
}

void SimClient::CheckBuffer(SimDaemon& daemon, const std::string& buffer, const Submission& submission,
                            v1::JobState state) {
  const StatusOr<std::string> bytes = frontend_.ReadBuffer(daemon, tenant_, buffer);
  context_.Check(bytes.ok(), "buffers", [&] { return "A buffer is gone: " + bytes.status().ToString(); });
  const bool succeeded = state == v1::JOB_STATE_SUCCEEDED;
  const std::string want =
      succeeded ? history_.ExpectedOutput(submission, submission.ids[0], 0) : buffers_[buffer].bytes;
  context_.Check(!bytes.ok() || *bytes == want, "buffers", [&] {
    return "After " + submission.ids[0] + " ended as " + v1::JobState_Name(state) + " its buffer holds other bytes.";
  });
  buffers_.erase(buffer);
  frontend_.DeleteBuffer(daemon, tenant_, buffer).IgnoreError();
}

}  // namespace hpvm::server::sim
