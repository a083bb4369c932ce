// SPDX-License-Identifier: Apache-2.0
// The daemon's side of calls: what the service does between the network and the core; every response is shown to the
// history first. Also the network: it loses, repeats, delays and reorders messages.
#ifndef HPVMD_TESTS_SIM_FRONTEND_H_
#define HPVMD_TESTS_SIM_FRONTEND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/daemon.h"
#include "tests/sim/history.h"

namespace hpvm::server::sim {

class Network {
 public:
  Network(Context& context, std::function<SimDaemon*()> daemon)
      : context_(context), daemon_(std::move(daemon)), rng_(context.RngFor("network")) {}
  // `may_repeat`: the transport itself repeats nothing, but a client that has a key may.
  void ToServer(bool may_repeat, std::function<void(SimDaemon&)> deliver);
  void ToClient(std::function<void()> deliver);

 private:
  Duration Delay();

  Context& context_;
  std::function<SimDaemon*()> daemon_;  // Returns null while no daemon serves.
  SeededRng rng_;
};

class Frontend {
 public:
  Frontend(Context& context, History& history) : context_(context), history_(history) {}

  // `reply` is called at most once, later or at once; never by a crashed daemon.
  using SubmitReply = std::function<void(const Outcome&, const v1::SubmitResponse&)>;
  void Submit(SimDaemon& daemon, Submission& submission, SubmitReply reply);
  using Reply = std::function<void(const Status&)>;
  void Cancel(SimDaemon& daemon, const std::string& tenant, const std::string& id, Reply reply);
  using JobReply = std::function<void(const Status&, const v1::Job&)>;
  void GetJob(SimDaemon& daemon, const std::string& tenant, const std::string& id, const JobReply& reply);
  void ListJobs(SimDaemon& daemon, const std::string& tenant, const v1::ListJobsRequest& request);
  void Fetch(SimDaemon& daemon, const std::string& tenant, const std::string& id, const std::string& name);
  // Watches until the job or the daemon ends; `reply` gets the last state.
  void Watch(SimDaemon& daemon, const std::string& tenant, const std::string& id, JobReply reply);

  void PutGraph(SimDaemon& daemon, const std::string& tenant, const std::string& document, const Reply& reply);
  using HandleReply = std::function<void(const Status&, const std::string& handle)>;
  void Prepare(SimDaemon& daemon, const std::string& tenant, const std::string& graph_sha256, HandleReply reply);
  // A volatile run with input "x" only, checked here.
  void Run(SimDaemon& daemon, const std::string& tenant, const std::string& handle, const GraphSpec& graph,
           uint64_t token, Reply reply);
  // Makes a buffer with these bytes and returns its id.
  StatusOr<std::string> MakeBuffer(SimDaemon& daemon, const std::string& tenant, const std::string& bytes);
  StatusOr<std::string> ReadBuffer(SimDaemon& daemon, const std::string& tenant, const std::string& id);
  Status DeleteBuffer(SimDaemon& daemon, const std::string& tenant, const std::string& id);

 private:
  struct Watcher;
  void ReadEvents(SimDaemon& daemon, const std::shared_ptr<Watcher>& watcher);

  Context& context_;
  History& history_;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_FRONTEND_H_
