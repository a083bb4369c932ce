// SPDX-License-Identifier: Apache-2.0
// The server's certificate changes when its files do, and never to one that cannot be served with: a certificate beside
// another's key must not end all TLS.
#ifndef HPVMD_SERVER_FRONT_TLS_WATCH_H_
#define HPVMD_SERVER_FRONT_TLS_WATCH_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/round_thread.h"
#include "base/status.h"
#include "server/events/events.h"
#include "server/front/tls.h"

namespace hpvm::server {

// Looks at the files each second, on a thread of its own.
class TlsWatch {
 public:
  // `first` is what the files held, without a fault. `observer` lives longer.
  TlsWatch(const Config& config, TlsFiles first, Observer& observer);

  // What is in force, when that is not what the call before answered. Any thread; never looks at a file.
  std::optional<TlsFiles> TakeChanged();

 private:
  void Look();
  void Load(TlsFiles files);
  void Refuse(const TlsFiles& files, const Diagnostics& faults);

  const Config config_;
  Observer& observer_;
  std::string refused_;  // The thread's own: the fault that was logged last, with what the files held; empty: none.
  std::mutex mutex_;
  TlsFiles files_;  // Guarded by mutex_, as are those below; only the thread writes.
  bool is_taken_ = false;
  std::optional<RoundThread> thread_;  // Once `first` is loaded.
};

// Without tls.certificate: null. The files are looked at again every second, so that a new certificate needs no
// restart; connections that stand keep theirs. What was loaded last stays in force while the files have a fault. Each
// load, and each refusal, is logged and told to `observer`, which lives longer. kInvalidArgument with every fault of
// the files.
StatusOr<std::unique_ptr<TlsWatch>> WatchTls(const Config& config, Observer& observer);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_TLS_WATCH_H_
