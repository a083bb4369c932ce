// SPDX-License-Identifier: Apache-2.0
// Credentials whose certificate changes when its files do, and never to one that cannot be served with.
//
// gRPC's own watcher of files hands on whatever it reads, so that a certificate beside another's key ends all TLS. Its
// callback for certificates, which only the C interface has, keeps the last ones; it is asked here.
#ifndef HPVMD_SERVER_TLS_WATCH_H_
#define HPVMD_SERVER_TLS_WATCH_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "server/tls.h"

namespace hpvm {

// Looks at the files each second, on a thread of its own.
class TlsWatch {
 public:
  // `first` is what the files held, without a fault. `observer` lives longer.
  TlsWatch(const Config& config, TlsFiles first, Observer& observer);
  ~TlsWatch();
  TlsWatch(const TlsWatch&) = delete;
  TlsWatch& operator=(const TlsWatch&) = delete;

  // What is in force, when that is not what the call before answered. Any thread; never looks at a file.
  std::optional<TlsFiles> TakeChanged();

 private:
  void Loop();
  void Look();
  void Load(TlsFiles files);
  void Refuse(const TlsFiles& files, const Diagnostics& faults);

  const Config config_;
  Observer& observer_;
  std::string refused_;  // The thread's own: the fault that was logged last, with what the files held; empty: none.
  std::mutex mutex_;
  std::condition_variable changed_;
  TlsFiles files_;  // Guarded by mutex_, as are those below; only the thread writes.
  bool is_taken_ = false, stop_ = false;
  std::thread thread_;
};

// With a watch of their own. As MakeServerCredentials, whose files have been read.
std::shared_ptr<grpc::ServerCredentials> WatchedCredentials(const Config& config, TlsFiles first, Observer& observer);

}  // namespace hpvm

#endif  // HPVMD_SERVER_TLS_WATCH_H_
