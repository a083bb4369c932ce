// SPDX-License-Identifier: Apache-2.0
// Connection makes one tenant's calls to the daemon under test. Each failed call is written to the journal with its
// times: between a kill and the next start calls may fail, but none may while a configuration is reloaded.
#ifndef HPVMD_TESTS_CHAOS_CONNECTION_H_
#define HPVMD_TESTS_CHAOS_CONNECTION_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "hpvm/v1/service.pb.h"
#include "tests/chaos/journal.h"
#include "tests/chaos/work.h"

namespace hpvm::chaos {

// Thread-safe.
class Connection {
 public:
  Connection(const std::string& endpoint, std::string tenant, std::string module, Journal& journal);
  ~Connection();

  // Returns a known key's job, or a new one; uploads what the daemon does not have.
  Status Submit(const Work& work, v1::SubmitResponse* response);
  Status GetJob(const std::string& id, v1::Job* job);
  Status Cancel(const std::string& id, v1::CancelJobResponse* response);
  Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response);
  Status Fetch(const std::string& id, const std::string& name, std::string* bytes);
  // Watches until the job ends or `within` has passed.
  Status Watch(const std::string& id, Duration within, const std::function<void(const v1::Job&)>& on_job);
  // Prepares and runs at once, storing nothing.
  Status Run(const Work& work, std::string* bytes);
  Status Info(v1::ServerInfoResponse* response);
  // Makes the next runs prepare anew: handles are lost with the daemon that issued them.
  void ForgetHandles() {
    std::lock_guard lock(mutex_);
    handles_.clear();
  }

 private:
  struct Impl;
  Status Upload(Kind kind, uint32_t amount);
  StatusOr<std::string> Prepare(const Work& work);
  void Failed(const char* method, int64_t start_ns, const Status& status, const std::string& about);

  const std::string tenant_, module_, module_sha256_;
  Journal& journal_;
  std::unique_ptr<Impl> impl_;
  std::mutex mutex_;
  std::map<std::pair<Kind, uint32_t>, std::string> handles_;  // Guarded by mutex_.
};

}  // namespace hpvm::chaos

#endif  // HPVMD_TESTS_CHAOS_CONNECTION_H_
