// SPDX-License-Identifier: Apache-2.0
// CallWorld runs three tenants, their executors and a daemon with small limits on one thread: it plays a script
// (call_script.h) and compares the result of each step with what the daemon promises.
#ifndef HPVMD_SERVER_TESTING_CALL_WORLD_H_
#define HPVMD_SERVER_TESTING_CALL_WORLD_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "server/testing/call_client.h"
#include "server/testing/call_executors.h"
#include "server/testing/call_promises.h"
#include "server/testing/call_script.h"
#include "server/testing/hand_daemon.h"

namespace hpvm::server::testing {

class CallWorld : private HandDaemon {
 public:
  CallWorld();
  ~CallWorld();

  // Plays the script and then ends everything that it began. Returns the first broken promise with the steps up to
  // there, one per line; empty when there is none.
  std::string Play(const Script& script);
  const CallPromises& promises() const { return promises_; }
  // The first tenant's, for tests that falsify its accounts.
  const scheduler::Account& account() { return (*core_->tenants().FindTenant(kTenantNames[0]))->account; }

 private:
  using Numbers = std::array<uint8_t, 3>;

  // --- Steps ---
  void Step(const Action& action);
  void Administer(const Action& action);
  bool HoldStore(const Numbers& numbers);
  bool StepStore(const Numbers& numbers);
  bool FillDisk(const Numbers& numbers);
  bool Probe(const Numbers& numbers);
  bool Advance(Duration by);
  bool SetConfig(const Numbers& numbers);
  bool SetPolicy(const std::string& tenant, const Numbers& numbers);
  void StartAgain();
  void Stop(const Numbers& numbers);
  void Kill();
  void CheckAccounts(bool at_rest);

  // --- The end ---
  void EndAll();
  void LiftAll();
  bool IsQuiet();
  std::vector<std::string> LiveJobs(size_t tenant);
  void AwaitQuiet();
  void DropAll();
  void CheckNothingLeft();
  void CheckBalance(const Tenant& tenant, scheduler::Resource resource, uint64_t wanted);

  CallPromises promises_;
  CallExecutors executors_;
  std::vector<CallClient> clients_;
  uint64_t full_commits_ = 0;  // Commits that find no room.
  bool says_full_ = false;     // The core was told.
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_WORLD_H_
