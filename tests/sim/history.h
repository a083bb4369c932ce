// SPDX-License-Identifier: Apache-2.0
// History checks the promises about clients' requests and responses: an acknowledged job exists from then on; a key
// stands for one request and one job; a job ends once, the same for every reader; fetched outputs are what the graph
// computes; an acknowledged request to cancel is remembered; nobody sees another tenant's jobs.
//
// Responses are checked when the daemon gives them, in that order: a client that never receives one may not rely on
// it, but another client may have read the same.
#ifndef HPVMD_TESTS_SIM_HISTORY_H_
#define HPVMD_TESTS_SIM_HISTORY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core/state/outcome.h"
#include "tests/sim/attempts.h"
#include "tests/sim/context.h"
#include "tests/sim/graph_spec.h"
#include "tests/sim/store_model.h"

namespace hpvm::server::sim {

// One request for jobs: a Submit, or a RetryJob, however often it is sent.
struct Submission {
  uint64_t number = 0;
  std::string tenant, key;
  v1::SubmitRequest request;  // For a Submit.
  std::string retry_of;       // For a RetryJob: the job.
  uint64_t token = 0;         // Token of its payload; a RetryJob's is that of the Submit.
  GraphSpec graph;
  GraphInputs inputs;  // Without "i".
  uint64_t first = 0, step = 1, count = 1;
  bool is_array = false;
  uint64_t incarnation = 0;  // Incarnation of the daemon whose buffers it names; 0 for none.
  std::string buffer;        // Buffer for "y"; with the job when empty.
  // All elements, once acknowledged.
  std::vector<std::string> ids;
  std::string array_id;
  bool was_new = false;  // Some response said that it made the job.

  bool acknowledged() const { return !ids.empty(); }
};

class History {
 public:
  History(Context& context, StoreModel& model, Attempts& attempts)
      : context_(context), model_(model), attempts_(attempts) {}

  Submission& NewSubmission();

  // --- Answers of the daemon ---
  void OnSubmitted(Submission& submission, const Outcome& outcome, const v1::SubmitResponse& response);
  void OnJob(const std::string& tenant, const std::string& id, const Status& status, const v1::Job& job);
  // A request to cancel has reached the daemon.
  void OnCancelAsked(const std::string& id) { attempts_.OnCancelSent(id); }
  void OnCancelled(const std::string& tenant, const std::string& id, const Status& status);
  void OnList(const std::string& tenant, const v1::ListJobsResponse& response);
  void OnOutput(const std::string& tenant, const std::string& id, const std::string& name, const Status& status,
                const std::string& bytes);

  // --- At the end ---
  // Returns every acknowledged job, by id, with the tenant.
  std::vector<std::pair<std::string, std::string>> Acknowledged() const;
  const Submission* SubmissionOf(const std::string& id) const;
  std::string ExpectedOutput(const Submission& submission, const std::string& id, uint32_t output) const;
  // Called when all jobs have ended: checks that dependency conditions agree with the outcomes.
  void CheckEnds();
  uint64_t acknowledged() const { return owners_.size(); }

 private:
  struct Owner {
    std::string tenant;
    Submission* submission = nullptr;
    uint64_t index = 0;  // In the array.
  };
  // The latest state that any reader was told about a job.
  struct Seen {
    uint32_t attempt = 0;
    bool cancel_requested = false;
    std::string terminal;  // Facts that may never change.
  };

  void CheckIds(Submission& submission, const v1::SubmitResponse& response);
  void CheckSomeAreTold(const Submission& submission, const std::string& array_id, const std::vector<std::string>& ids);
  void CheckKey(Submission& submission, const v1::SubmitResponse& response);
  void CheckRefusal(const Submission& submission, const Outcome& outcome);
  void Look(const std::string& tenant, const v1::Job& job);
  void CheckDependencies(const Row& row);

  Context& context_;
  StoreModel& model_;
  Attempts& attempts_;
  std::deque<Submission> submissions_;                               // In a deque pointers stay valid.
  std::map<std::string, Owner> owners_;                              // Keyed by job id.
  std::map<std::pair<std::string, std::string>, Submission*> keys_;  // Keys of acknowledged submissions.
  std::map<std::string, Seen> seen_;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_HISTORY_H_
