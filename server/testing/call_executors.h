// SPDX-License-Identifier: Apache-2.0
// CallExecutors plays the executors of a script: their replies and their ends, within what the link allows.
#ifndef HPVMD_SERVER_TESTING_CALL_EXECUTORS_H_
#define HPVMD_SERVER_TESTING_CALL_EXECUTORS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "server/testing/call_promises.h"
#include "server/testing/call_script.h"
#include "server/testing/fake_executor.h"

namespace hpvm::server::testing {

class CallExecutors {
 public:
  // Borrows both.
  CallExecutors(FakeSpawner& spawner, CallPromises& promises) : spawner_(spawner), promises_(promises) {}

  // Returns false when the action is not an executor's.
  bool Do(const Action& action);
  // Answers everything that waits with success, and ends those that were told to end. Returns true when there was
  // something.
  bool AnswerAll();
  // Lets executors start again.
  void Heal();

 private:
  using Numbers = std::array<uint8_t, 3>;

  std::vector<std::shared_ptr<FakeExecutor>> Alive();
  // Returns the unanswered calls of all executors: the executor and the position.
  template <typename Calls>
  std::vector<std::pair<std::shared_ptr<FakeExecutor>, size_t>> Open(Calls FakeExecutor::*calls);
  bool AnswerPrepare(const Numbers& numbers);
  bool AnswerRun(const Numbers& numbers);
  bool AnswerCosts(const Numbers& numbers);
  bool AnswerReclaim(const Numbers& numbers);
  bool ReportUsage(const Numbers& numbers);
  bool Die(const Numbers& numbers);
  bool Ready(const Numbers& numbers);
  bool SetStarts(const Numbers& numbers);
  supervisor::RunReply ReplyTo(const FakeExecutor& executor, const FakeExecutor::RunCall& run, const Numbers& numbers);

  FakeSpawner& spawner_;
  CallPromises& promises_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_EXECUTORS_H_
