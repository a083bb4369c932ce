// SPDX-License-Identifier: Apache-2.0
// TlsWatch replaces the server's certificate when its files change, but never by an unusable one: a certificate
// beside another's key must not end all TLS.
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

// Checks the files each second, on a thread of its own.
class TlsWatch {
 public:
  // `first` is the contents of the files, without faults. `observer` must outlive this object.
  TlsWatch(const Config& config, TlsFiles first, Observer& observer);

  // Returns the files in force when they differ from the last call's. Thread-safe; reads no file.
  std::optional<TlsFiles> TakeChanged();

 private:
  void Look();
  void Load(TlsFiles files);
  void Refuse(const TlsFiles& files, const Diagnostics& faults);

  const Config config_;
  Observer& observer_;
  // Used by the thread only: the last logged fault with the files' contents; empty when there is none.
  std::string refused_;
  std::mutex mutex_;
  TlsFiles files_;  // This and the following members are guarded by mutex_; only the thread writes.
  bool is_taken_ = false;
  std::optional<RoundThread> thread_;  // Set once `first` is loaded.
};

// Returns null without tls.certificate. The files are checked every second, so that a new certificate needs no
// restart; existing connections keep theirs. The last loaded files stay in force while the current ones have a fault.
// Each load, and each refusal, is logged and reported to `observer`, which must outlive the watch. kInvalidArgument
// with every fault of the files.
StatusOr<std::unique_ptr<TlsWatch>> WatchTls(const Config& config, Observer& observer);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_TLS_WATCH_H_
