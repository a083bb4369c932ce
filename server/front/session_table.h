// SPDX-License-Identifier: Apache-2.0
// The sessions of this process by descriptor, for the C library's calls that gRPC makes (server/front/io_hooks.cc), and
// by the name that gRPC knows a connection by, for the gate.
//
// gRPC asks the kernel for a connection's peer, and hands the answer on with each call. It gets a name of ours instead,
// with a number that no other connection of this process ever has: nothing that a client sends, and no address that it
// comes from, makes it look like another connection.
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

// Any thread. There is one, as there is one C library; a forked child begins with an empty one.
class SessionTable {
 public:
  // Descriptors from here on have no place.
  static constexpr int kDescriptorsMax = 1 << 20;

  static SessionTable& Get();
  // kInternal: gRPC's calls would not come here, so that nothing would be counted.
  static Status Check();

  // Before gRPC gets the descriptor. False: it is beyond kDescriptorsMax.
  bool Add(std::shared_ptr<Session> session);
  // Who is behind the peer that gRPC says a call came from; null: nobody any more, or it is no name of ours.
  std::shared_ptr<Session> Find(std::string_view peer) const;
  // Session::EndIfLate of each.
  void EndLate(Time now);
  size_t size() const;

  // --- For the hooks ---
  // Null for every other descriptor. Good until gRPC closes it, when no thread of gRPC's uses it any more.
  static Session* At(int fd);
  // As close; also for other descriptors, and in a child that shares this process's memory until it starts a program.
  int Close(int fd);
  // As getpeername.
  int NamePeer(int fd, sockaddr* address, socklen_t* size) const;

 private:
  SessionTable();
  // In a child: its copies of the descriptors are no connections.
  void ForgetAll();

  int owner_;  // The process.
  mutable std::mutex mutex_;
  uint64_t last_number_ = 0;
  std::unordered_map<int, uint64_t> numbers_;
  // Shared with whoever has just looked one up.
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SESSION_TABLE_H_
