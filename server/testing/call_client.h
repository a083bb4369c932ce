// SPDX-License-Identifier: Apache-2.0
// CallClient is one tenant's client, which calls the core as gRPC's reactors do, with values from earlier responses
// and sometimes with invented ones.
#ifndef HPVMD_SERVER_TESTING_CALL_CLIENT_H_
#define HPVMD_SERVER_TESTING_CALL_CLIENT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core/core.h"
#include "server/testing/call_promises.h"
#include "server/testing/call_script.h"

namespace hpvm::server::testing {

class CallClient {
 public:
  // Borrows the promises.
  CallClient(size_t tenant, CallPromises& promises) : tenant_(tenant), promises_(promises) {}

  std::string name() const { return std::string(kTenantNames[tenant_]); }
  // Sets the daemon for the following calls; borrowed until Disconnect.
  void Connect(Core& core) { core_ = &core; }
  // The client disconnects: its unfinished calls end, as far as the daemon still listens. Jobs and keys stay known;
  // objects in the daemon's memory are forgotten.
  void Disconnect(bool is_heard);

  // Returns false when the action is not a client's.
  bool Do(const Action& action);

  // --- The end ---
  // Ends open calls and abandons running ones.
  void Abandon();
  void CancelJobs(const std::vector<std::string>& ids);
  // Deletes everything in memory by name, including objects named in lost responses.
  void DropAll();
  // Checks that every acknowledged job exists.
  void FindJobs();

 private:
  using Numbers = std::array<uint8_t, 3>;
  // A call with its messages, which the core borrows until the response. Shared with the response.
  template <typename Request, typename Response>
  struct Played {
    CallPromises::CallRef call;
    Request request;
    Response response;
  };
  struct Upload {
    TenantRef tenant;
    std::unique_ptr<BlobUpload> upload;  // Null when the blob existed.
    Graphs::BlobKind kind = Graphs::BlobKind::kGraph;
    std::string text;
    size_t at = 0;
  };
  struct Write {
    std::string id;
    SegmentRef segment;
  };
  struct OpenStream {
    TenantRef tenant;
    PreparationRef preparation;
    std::shared_ptr<v1::StreamRequest::Open> open;
  };
  struct OpenList {
    CallPromises::CallRef call;
    TenantRef tenant;
    std::shared_ptr<v1::ListJobsRequest> request;
    std::shared_ptr<v1::ListJobsResponse> response;
    JobReader::Steps step;
    int seen = 0;
  };
  struct Watch {
    TenantRef tenant;
    std::string id;
    uint64_t key = 0, after = 0;
  };

  // call_client.cc
  // Like the gate: resolves the caller and checks its rights.
  Outcome Enter(uint64_t request_bytes, TenantRef* tenant);
  CallPromises::CallRef Begin(ActionKind kind, std::string asked);
  // Refused when the gate refuses; otherwise `act` answers.
  void CallNow(ActionKind kind, const std::string& asked, const std::function<Outcome(Tenant&, std::string*)>& act);
  // Returns an own object, the newest first; sometimes another tenant's, or one that nobody has.
  std::string Pick(const std::vector<std::string>& own, std::string_view kind, uint8_t number) const;
  void Nothing(ActionKind kind) { promises_.Count(kind, false); }
  void Info(ActionKind kind, const Numbers& numbers);
  bool DoData(ActionKind kind, const Numbers& numbers);
  bool DoRuns(ActionKind kind, const Numbers& numbers);
  bool DoJobs(ActionKind kind, const Numbers& numbers);

  // call_client_data.cc
  std::string DocumentText(uint8_t number) const;
  std::string ModuleText(uint8_t number) const;
  Status BeginUpload(const Numbers& numbers, Upload* upload);
  Status FinishUpload(Upload& upload, std::string* answer);
  void EndUpload(Upload& upload);
  void UploadWhole(const Numbers& numbers);
  void UploadStart(const Numbers& numbers);
  void UploadPart(const Numbers& numbers);
  void UploadFinish(ActionKind kind, const Numbers& numbers);
  void CreateBuffer(const Numbers& numbers);
  void WriteBuffer(const Numbers& numbers);
  void FinishWrite(const Numbers& numbers);
  void ReadBuffer(const Numbers& numbers);
  void EndDownload();
  void DeleteBuffer(const Numbers& numbers);
  void ListBuffers(const Numbers& numbers);

  // call_client_runs.cc
  void PrepareGraph(const Numbers& numbers);
  void CancelPrepare(const Numbers& numbers);
  void ReleaseGraph(const Numbers& numbers);
  void ListGraphs(const Numbers& numbers);
  void Run(const Numbers& numbers);
  void CancelRun(const Numbers& numbers);
  void OpenAStream(const Numbers& numbers);
  void StreamItem(const Numbers& numbers);
  void CloseStream(const Numbers& numbers);
  void ListCosts(const Numbers& numbers);
  void OnRunDone(CallPromises::Call& call, const RunOutcome& outcome);
  void BindModules(uint8_t number, google::protobuf::RepeatedPtrField<v1::ModuleBinding>* modules) const;

  // call_client_jobs.cc
  v1::SubmitRequest MakeSubmission(const Numbers& numbers) const;
  void AddAfter(uint8_t number, v1::SubmitRequest* request) const;
  void SetKey(uint8_t number, v1::SubmitRequest* request);
  void Submit(ActionKind kind, const Numbers& numbers);
  void Retry(const Numbers& numbers);
  void OnSubmitted(CallPromises::Call& call, const v1::RequestOptions& options, const Outcome& outcome,
                   const v1::SubmitResponse& response);
  void CancelJob(const std::string& id);
  void SetJobHold(const Numbers& numbers);
  void GetJob(const Numbers& numbers);
  void ListJobs(const Numbers& numbers);
  void ListStep(const Numbers& numbers);
  void ListAbandon();
  void WatchJob(const Numbers& numbers);
  void ReadEvents(const Numbers& numbers);
  void CheckEvents(Watch& watch, const JobReader::EventBatch& batch);
  void Unwatch(const Numbers& numbers);
  void FetchOutput(const Numbers& numbers);

  const size_t tenant_;
  CallPromises& promises_;
  Core* core_ = nullptr;
  std::vector<std::string> documents_, modules_;  // SHA-256 of the uploads.
  std::vector<std::string> handles_, buffers_, jobs_, arrays_, list_tokens_;
  std::vector<uint64_t> prepares_, runs_;  // Ids for cancelling.
  std::vector<Upload> uploads_;
  std::vector<Write> writes_;
  std::vector<TenantRef> downloads_;
  std::vector<OpenStream> streams_;
  std::vector<OpenList> lists_;
  std::vector<Watch> watches_;
  uint64_t next_key_ = 0;
  std::vector<std::pair<std::string, v1::SubmitRequest>> keyed_;  // Submissions that may be repeated.
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_CLIENT_H_
