// SPDX-License-Identifier: Apache-2.0
// Many clients that each keep one call in flight, for Run and for the peer's Echo alike.
//
// Uses the callback API and one connection per client: one blocking thread per client would measure this machine's
// context switches instead of the server.
#ifndef HPVMD_BENCH_SERVICE_RUN_CALLS_H_
#define HPVMD_BENCH_SERVICE_RUN_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/ring_caller.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm::bench {

class CallLoad {
 public:
  virtual ~CallLoad() = default;
  // Each client makes calls one after the other until `calls` are answered in total. Every response is checked.
  // Reports the time from the first to the last, and each call's own time.
  struct Outcome {
    Duration elapsed{0};
    std::vector<int64_t> call_ns;
  };
  virtual StatusOr<Outcome> Run(uint32_t calls) = 0;
};

inline constexpr uint32_t kCallBytes = 4096;

// Run of a prepared one-node graph: input "x" of kCallBytes inline, output "y" with the same bytes. Connections use
// TLS when `ca_pem` is given.
StatusOr<std::unique_ptr<CallLoad>> MakeRunLoad(const std::string& endpoint, const std::string& handle,
                                                uint32_t clients, const std::string& ca_pem = "");
// The minimal server's Echo with the same number of bytes.
StatusOr<std::unique_ptr<CallLoad>> MakeEchoLoad(const std::string& endpoint, uint32_t clients);
// The same with its CallbackEcho.
StatusOr<std::unique_ptr<CallLoad>> MakeCallbackEchoLoad(const std::string& endpoint, uint32_t clients);

// Threads of one client that each call and wait, by ring or gRPC; and as many in front of a ring that returns every
// body. Both are borrowed.
StatusOr<std::unique_ptr<CallLoad>> MakeClientLoad(Client& client, const std::string& handle, uint32_t threads);
StatusOr<std::unique_ptr<CallLoad>> MakeRingEchoLoad(RingCaller& caller, uint32_t threads);
// The same run by one thread: with tensors, as programs use it, and with only the generated stub and a channel.
StatusOr<std::unique_ptr<CallLoad>> MakeTensorLoad(Client& client, const std::string& handle);
StatusOr<std::unique_ptr<CallLoad>> MakeStubLoad(const std::string& endpoint, const std::string& handle);
// Makes calls until the client's calls go by ring.
Status AwaitRing(Client& client, CallLoad& load);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_RUN_CALLS_H_
