// SPDX-License-Identifier: Apache-2.0
// CallPromises compares the daemon's responses with what the daemon promises about each. It keeps the first broken
// promise.
#ifndef HPVMD_SERVER_TESTING_CALL_PROMISES_H_
#define HPVMD_SERVER_TESTING_CALL_PROMISES_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hpvm/v1/job.pb.h"
#include "server/core/state/outcome.h"
#include "server/testing/call_script.h"

namespace hpvm::server::testing {

// No name is a substring of anything else in responses.
inline constexpr std::array<std::string_view, 3> kTenantNames = {"amber", "birch", "cedar"};
// A tenant's bytes consist of this letter, besides zeros and numbers of array elements.
inline uint8_t LetterOf(size_t tenant) { return static_cast<uint8_t>('A' + tenant); }

// Returns the ids of objects in a text or a serialised message.
std::vector<std::string> IdsIn(std::string_view text);

class CallPromises {
 public:
  struct Call {
    ActionKind kind = ActionKind::kUpload;
    size_t tenant = 0;
    uint64_t number = 0;
    std::string asked;  // Contents of the request, which the response may repeat.
    bool is_answered = false;
  };
  using CallRef = std::shared_ptr<Call>;

  // A sentence; empty when all promises were kept.
  const std::string& broken() const { return broken_; }
  void Break(std::string sentence);
  void Expect(bool holds, std::string_view sentence);

  // --- Calls: answered once, with a documented code and a sentence, about the caller's own objects ---
  CallRef Begin(ActionKind kind, size_t tenant, std::string asked);
  void Answer(Call& call, const Outcome& outcome, std::string_view answer);
  // A call that is answered at once.
  void AnswerNow(ActionKind kind, size_t tenant, std::string asked, const Outcome& outcome, std::string_view answer);
  // The client goes before the response comes.
  void Abandon(const Call& call) { open_.erase(call.number); }
  // Nobody waits for the open calls.
  void LoseOpen() { open_.clear(); }
  size_t open() const { return open_.size(); }
  void ExpectNoneOpen(std::string_view when);
  // Checks that bytes shown to a tenant hold no other tenant's.
  void ExpectOwnBytes(size_t tenant, std::string_view bytes, std::string_view place);

  // --- Jobs ---
  void OnJob(size_t tenant, const v1::Job& job);
  void OnAcknowledged(size_t tenant, const std::string& id);
  // The key stands for that job, until keys are forgotten.
  void OnKey(size_t tenant, const std::string& key, const std::string& id);
  void OnKeysForgotten() { keys_.clear(); }
  // The row may be gone from now on.
  void OnForgotten(const std::string& id) { forgotten_.insert(id); }
  // Checks a job after a restart; `status` is that of reading it.
  void OnFound(size_t tenant, const std::string& id, const Status& status, const v1::Job& job);
  // Owners by id.
  const std::map<std::string, size_t>& acknowledged() const { return acknowledged_; }

  // Returns an object of another tenant; empty when there is none.
  std::string ForeignId(size_t tenant, std::string_view kind, size_t number) const;

  // --- How often each kind of step had an effect, and had none ---
  struct Counts {
    uint64_t accepted = 0, refused = 0;
  };
  void Count(ActionKind kind, bool is_accepted);
  const std::array<Counts, kActionKinds>& counts() const { return counts_; }

 private:
  struct KnownJob {
    v1::JobState end = v1::JOB_STATE_UNSPECIFIED;
    uint32_t attempt = 0;
  };

  void CheckRefusal(const Call& call, const Outcome& outcome);
  void CheckAsked(const Call& call);
  void CheckOwners(const Call& call, std::string_view answer);
  void CheckError(const v1::Job& job);

  std::string broken_;
  uint64_t calls_ = 0;
  std::map<uint64_t, CallRef> open_;
  std::map<std::string, size_t> owners_;  // Owners of all ids in responses.
  std::map<std::string, KnownJob> jobs_;
  std::map<std::string, size_t> acknowledged_;
  std::map<std::pair<size_t, std::string>, std::string> keys_;
  std::set<std::string> forgotten_;
  std::array<Counts, kActionKinds> counts_{};
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_CALL_PROMISES_H_
