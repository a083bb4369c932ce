// SPDX-License-Identifier: Apache-2.0
// PostgresListener receives what transactions of a PostgreSQL database tell with NOTIFY (SqlSession::Notify).
#ifndef HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_LISTENER_H_
#define HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_LISTENER_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/io/fd.h"
#include "base/status.h"
#include "server/cluster/postgres/postgres_session.h"

namespace hpvm::server::cluster {

// The listener has a thread and a connection of its own, which sleeps while nothing is told. A lost connection is made
// anew after 0.1 s, then after pauses that double up to 2 s. A loss is noticed at once when the server ends, and by TCP
// after some ten seconds when its machine or the network does; a server that hangs is not noticed. So a listener saves
// polling but does not replace it: poll rarely, too.
class PostgresListener {
 public:
  struct Callbacks {
    // Called after the commit of each transaction that told something, in their order.
    std::function<void(const std::string& channel, const std::string& payload)> on_notice;
    // Called each time that the listener has begun to listen, the first time too: it may have missed what was told
    // before, so read the tables now.
    std::function<void()> on_gap;
  };

  // Returns at once, before it is connected. The callbacks run on the listener's thread, one at a time, from then on
  // until the destructor returns; they throw nothing, and do not destroy the listener. kResourceExhausted: the process
  // has no file descriptor left.
  static StatusOr<std::unique_ptr<PostgresListener>> Start(PostgresOptions options, std::vector<std::string> channels,
                                                           Callbacks callbacks);
  // Waits for a callback that runs, and otherwise for a few milliseconds, also while it connects.
  ~PostgresListener();

  // Says why it does not listen; kUnavailable before it first does. Thread-safe.
  Status status() const;

 private:
  PostgresListener(PostgresOptions options, std::vector<std::string> channels, Callbacks callbacks, UniqueFd stop);
  void Run();
  // Connects and listens until the connection is lost, and returns why. kCancelled: the listener ends.
  Status ListenOnce();
  Status Deliver(pg_conn* connection);
  // Waits until the connection has something to read. kCancelled: the listener ends.
  Status WaitFor(pg_conn* connection, Duration timeout);
  Status Ask(pg_conn* connection, const std::string& statement);
  void SetStatus(Status status);

  const PostgresOptions options_;
  const std::vector<std::string> channels_;
  const Callbacks callbacks_;
  const UniqueFd stop_;  // An eventfd that becomes readable when the listener ends.
  mutable std::mutex mutex_;
  Status status_;       // Guarded by mutex_.
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_POSTGRES_POSTGRES_LISTENER_H_
