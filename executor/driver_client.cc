// SPDX-License-Identifier: Apache-2.0
// The runner's end of a supervisor's socket.
#include <map>
#include <mutex>
#include <utility>

#include "builder/client.h"
#include "executor/driver_message.h"
#include "executor/driver_process.h"

namespace hpvm::executor {
namespace {

class Client final : public DriverBuilder {
 public:
  Client(UniqueFd socket, const builder::BuildHello& hello, DriverIdentities identity)
      : identity_(std::move(identity)),
        client_(
            std::move(socket), hello,
            {.limits = kDriverFrameLimits, .peer = "The process that builds for the driver", .next_note = nullptr}) {}

  StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience& patience) override {
    DriverRequest request;
    request.identity = IdentityOf(build.device);
    request.build = build;
    HPVMD_ASSIGN_OR_RETURN(builder::BuildClient::Answer answer, client_.Build({.payload = PayloadOf(request),
                                                                               .body = build.code,
                                                                               .fds = {},
                                                                               .deadline = patience.deadline,
                                                                               .stop = patience.stop}));
    const StatusOr<internal::DriverAnswer> checked = ReadDriverAnswer(answer.payload, answer.body);
    if (!checked.ok()) {
      return client_.Close(checked.status());
    }
    HPVMD_RETURN_IF_ERROR(StatusOf(*checked));
    return DriverBinary{.bytes = std::move(answer.body), .log = checked->log()};
  }

 private:
  // Empty when the driver does not report its identity; nothing is cached then.
  std::string IdentityOf(const std::string& device) {
    std::lock_guard lock(mutex_);
    const auto [known, is_new] = identities_.try_emplace(device);
    if (is_new) {
      known->second = identity_(device).value_or("");
    }
    return known->second;
  }

  const DriverIdentities identity_;
  std::mutex mutex_;
  std::map<std::string, std::string> identities_;  // Keyed by device; guarded by mutex_.
  builder::BuildClient client_;
};

}  // namespace

std::unique_ptr<DriverBuilder> ConnectDriverBuilder(UniqueFd socket, const builder::BuildHello& hello,
                                                    DriverIdentities identity) {
  return std::make_unique<Client>(std::move(socket), hello, std::move(identity));
}

}  // namespace hpvm::executor
