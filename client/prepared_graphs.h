// SPDX-License-Identifier: Apache-2.0
// PreparedGraphs keeps what a client has prepared, so that a server that restarted since can prepare it again.
#ifndef HPVMD_CLIENT_PREPARED_GRAPHS_H_
#define HPVMD_CLIENT_PREPARED_GRAPHS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "hpvm/options.h"

namespace hpvm {

// Thread-safe. Holds the bytes of every document and module until its handle is released.
class PreparedGraphs {
 public:
  struct Source {
    std::string document;
    Modules modules;
    PrepareOptions options;
    int64_t server_started_ns = 0;  // ServerInfoResponse.started_unix_ns of the server that has the graph.
  };

  void Add(const std::string& handle, Source source);
  // Forgets a handle that was released or has no owner; returns the server's name for it.
  std::string Remove(const std::string& handle);
  // Returns the server's own handle for the caller's; it differs once the graph was prepared again.
  std::string Current(const std::string& handle) const;

  // Called when the server does not know `used`, which Current had returned. Asks `started_ns` which server runs now,
  // and calls `prepare` if that is another than the one that had the graph. Returns true when Current now returns
  // another handle, by this call or by a concurrent one that this call waited for; false when the graph is not
  // registered here, or the same server dropped it.
  StatusOr<bool> PrepareAgain(const std::string& handle, const std::string& used,
                              const std::function<StatusOr<int64_t>()>& started_ns,
                              const std::function<StatusOr<std::string>(const Source&)>& prepare);

 private:
  struct Entry {
    std::mutex preparing;  // Held while the graph is prepared again.
    Source source;
    std::string current;  // Like server_started_ns, changed with both mutexes held.
  };

  mutable std::mutex mutex_;
  // Shared because a handle may be released while its graph is prepared again.
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_PREPARED_GRAPHS_H_
