// SPDX-License-Identifier: Apache-2.0
// Descriptors of clients' memory on their way in: beside each Unix socket of the service, PATH.memory. gRPC passes no
// descriptors; a client sends them there, in a datagram with a ticket of its own choice, and names the ticket in a
// call: one that is to be a buffer's memory, two for a ring (its memory and its bell).
//
// Who calls is for the call to prove. Here nobody is known but by the user id that the kernel gives: one user's
// descriptors never make another's go. A datagram that breaks a rule is dropped without an answer; the call then says
// that nothing came.
#ifndef HPVMD_SERVER_FRONT_DESCRIPTOR_INBOX_H_
#define HPVMD_SERVER_FRONT_DESCRIPTOR_INBOX_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

inline constexpr char kMemorySocketSuffix[] = ".memory";
inline constexpr size_t kMemoryTicketBytes = 32;

// Any thread.
class DescriptorInbox {
 public:
  static constexpr Duration kKept = std::chrono::seconds(10);
  // Of one user id; the oldest goes for the next.
  static constexpr size_t kKeptOfOneMax = 16;
  // Of all. What comes when there are so many is dropped.
  static constexpr size_t kKeptMax = 512;
  // Descriptors of one ticket.
  static constexpr size_t kFdsMax = 2;

  // Listens beside each of these service sockets, with their permissions. kUnavailable or what opening them gave.
  // Borrows the clock.
  static StatusOr<std::unique_ptr<DescriptorInbox>> Start(const std::vector<std::string>& service_paths, mode_t mode,
                                                          const Clock& clock);
  // Ends the thread and removes the files.
  ~DescriptorInbox();
  DescriptorInbox(const DescriptorInbox&) = delete;
  DescriptorInbox& operator=(const DescriptorInbox&) = delete;

  // What came with the ticket, in its order; nobody gets it again. kNotFound, kInvalidArgument for a ticket of another
  // length or with another number of descriptors than `count`, which are dropped then.
  StatusOr<std::vector<UniqueFd>> Take(std::string_view ticket, size_t count);
  // Closes what came this way. The last descriptor of memory frees it, which takes as long as there is much of it, and
  // how much is its sender's choice: so nobody but this object's own thread ever closes one.
  void Drop(std::vector<UniqueFd> fds);

 private:
  // To be closed, at most; further datagrams wait in their socket.
  static constexpr size_t kDroppedMax = 256;

  struct Socket {
    std::string path;
    UniqueFd fd;
  };
  struct Kept {
    std::string ticket;
    uint32_t uid = 0;
    Time until{0};
    std::vector<UniqueFd> fds;
  };

  explicit DescriptorInbox(const Clock& clock) : clock_(clock) {}
  void Loop();
  // Reads a bounded number of datagrams. The mutex is held. False: there is no other now.
  bool ReadSome(int socket);
  void Keep(std::string_view ticket, uint32_t uid, std::vector<UniqueFd> fds);
  void DropAll(std::vector<UniqueFd>& fds);
  std::list<Kept>::iterator Forget(std::list<Kept>::iterator kept);
  void DropOld();

  const Clock& clock_;
  std::vector<Socket> sockets_;
  UniqueFd stop_;  // An eventfd.
  std::mutex mutex_;
  std::list<Kept> kept_;           // The oldest first.
  std::vector<UniqueFd> dropped_;  // The thread closes them, without the mutex.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_DESCRIPTOR_INBOX_H_
