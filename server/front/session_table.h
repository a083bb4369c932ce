// SPDX-License-Identifier: Apache-2.0
// SessionTable finds the sessions of this process by descriptor, for gRPC's calls of the C library
// (server/front/io_hooks.cc), and by gRPC's name for a connection, for the gate.
//
// gRPC asks the kernel for a connection's peer, and passes the answer on with each call. It gets a name of ours
// instead, with a number that no other connection of this process ever has: nothing that a client sends, and no
// address that it connects from, makes it look like another connection.
#ifndef HPVMD_SERVER_FRONT_SESSION_TABLE_H_
#define HPVMD_SERVER_FRONT_SESSION_TABLE_H_

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "server/front/session.h"

namespace hpvm::server {

// Thread-safe. A singleton, like the C library; a forked child begins with an empty table.
class SessionTable {
 public:
  // Descriptors from this number on are not accepted.
  static constexpr int kDescriptorsMax = 1 << 20;

  static SessionTable& Get();
  // Returns kInternal when gRPC's calls do not reach the hooks, so that nothing would be metered.
  static Status Check();

  // Called before gRPC gets the descriptor. Returns false when it is beyond kDescriptorsMax.
  bool Add(std::shared_ptr<Session> session);
  // Returns the session behind the peer name that gRPC passes with a call; null when it has ended, or the name is not
  // ours.
  std::shared_ptr<Session> Find(std::string_view peer) const;
  // Calls Session::EndIfLate for each session.
  void EndLate(Time now);
  size_t size() const;

  // --- For the hooks ---
  // Returns null for every other descriptor. Valid until gRPC closes it, when no thread of gRPC uses it any more.
  static Session* At(int fd);
  // Like close; also for other descriptors, and in a child that shares this process's memory until it executes a
  // program.
  int Close(int fd);
  // Like getpeername.
  int NamePeer(int fd, sockaddr* address, socklen_t* size) const;

 private:
  SessionTable();
  // Called in a child: its copies of the descriptors are not connections.
  void ForgetAll();

  int owner_;  // Process id of the owner.
  mutable std::mutex mutex_;
  uint64_t last_number_ = 0;
  std::unordered_map<int, uint64_t> numbers_;
  // Shared with threads that have just looked a session up.
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SESSION_TABLE_H_
