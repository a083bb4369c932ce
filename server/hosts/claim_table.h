// SPDX-License-Identifier: Apache-2.0
// ClaimTable joins the agent of this host, which claims jobs, with the core, which runs them.
#ifndef HPVMD_SERVER_HOSTS_CLAIM_TABLE_H_
#define HPVMD_SERVER_HOSTS_CLAIM_TABLE_H_

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "server/cluster/agent.h"
#include "server/cluster/agent_loop.h"
#include "server/core/jobs/job_claims.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

// Thread-safe. Its own mutex is never held while the core is called; the loop only queues what it is told.
class ClaimTable final : public cluster::AgentRuns {
 public:
  // Does work later, on a thread that may enter the core, in the tenant's turn.
  using Post = std::function<void(std::string tenant, std::function<void()> work)>;
  ClaimTable(Post post, std::string host) : post_(std::move(post)), host_(std::move(host)) {}

  // Called before the loop starts, and with null before these end. Borrowed.
  void SetParts(JobClaims* claims, cluster::AgentLoop* loop);

  // A JobStore's write of a job that this host has claimed. `done` is called later.
  void Change(ChangeJob change, JobStore::WriteDone done);
  // Returns the request of a claimed job, so that it is not read again; kNotFound.
  StatusOr<std::string> FindRequest(std::string_view tenant, std::string_view id);
  size_t size();

  // AgentRuns, on the loop's thread.
  void Start(const cluster::Claim& claim) override;
  void Stop(const cluster::HeldJob& job, StopReason why) override;
  void OnRecorded(const cluster::HeldJob& job, const StatusOr<cluster::JobView>& recorded) override;

 private:
  using Key = std::pair<std::string, std::string>;  // Tenant and id.
  struct Entry {
    cluster::HeldJob held;
    std::string request;
    uint32_t attempts = 0;     // With this one.
    bool has_ended = false;    // The loop was told.
    JobStore::WriteDone done;  // Waits for the end to be recorded.
  };
  void End(const cluster::HeldJob& job, cluster::RunEnd end);
  void Answer(const std::string& tenant, JobStore::WriteDone done, Status status);

  const Post post_;
  const std::string host_;
  std::mutex mutex_;
  JobClaims* claims_ = nullptr;
  cluster::AgentLoop* loop_ = nullptr;
  std::map<Key, Entry> entries_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_CLAIM_TABLE_H_
