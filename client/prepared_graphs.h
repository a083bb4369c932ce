// SPDX-License-Identifier: Apache-2.0
// What a client has prepared, kept so that it can be prepared again by a server that was restarted since.
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

// Any thread. Holds the bytes of every document and module until its handle is released.
class PreparedGraphs {
 public:
  struct Source {
    std::string document;
    Modules modules;
    PrepareOptions options;
    int64_t server_started_ns = 0;  // Which server has it: ServerInfoResponse.started_unix_ns.
  };

  void Add(const std::string& handle, Source source);
  // It is released, or nobody's: answers what the server calls it.
  std::string Remove(const std::string& handle);
  // The server's own handle of what the caller knows by this one: another one once it was prepared again.
  std::string Current(const std::string& handle) const;

  // The server does not know `used`, which Current had answered. Asks `started_ns` which server there is now, and has
  // `prepare` prepare the graph there if it is another than had it. True: Current answers another handle now, by this
  // call or by one beside it, which this one has waited for. False: the graph is not one of these, or that server
  // itself let go of it.
  StatusOr<bool> PrepareAgain(const std::string& handle, const std::string& used,
                              const std::function<StatusOr<int64_t>()>& started_ns,
                              const std::function<StatusOr<std::string>(const Source&)>& prepare);

 private:
  struct Entry {
    std::mutex preparing;  // Held while it is prepared again.
    Source source;
    std::string current;  // As its server's start, changed with both mutexes held.
  };

  mutable std::mutex mutex_;
  // Shared, since a handle may be released while its graph is prepared again.
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_PREPARED_GRAPHS_H_
