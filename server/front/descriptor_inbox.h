// SPDX-License-Identifier: Apache-2.0
// DescriptorInbox receives descriptors of clients' memory through a socket PATH.memory beside each Unix socket of the
// service. gRPC passes no descriptors, so a client sends them there, in a datagram with a ticket of its own choice,
// and names the ticket in a call: one descriptor for a buffer's memory, two for a ring (its memory and its bell).
//
// The call has to prove who calls. Here a client is known only by the user id from the kernel: descriptors of one
// user never displace another's. A datagram that breaks a rule is dropped without an answer; the call then reports
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

// Thread-safe.
class DescriptorInbox {
 public:
  static constexpr Duration kKept = std::chrono::seconds(10);
  // Limit per user id; the oldest makes room for the next.
  static constexpr size_t kKeptOfOneMax = 16;
  // Limit for all users. Datagrams beyond it are dropped.
  static constexpr size_t kKeptMax = 512;
  // Maximum number of descriptors of one ticket.
  static constexpr size_t kFdsMax = 2;

  // Listens beside each of these service sockets, with their permissions. Returns kUnavailable or the error of
  // opening the sockets. Borrows the clock.
  static StatusOr<std::unique_ptr<DescriptorInbox>> Start(const std::vector<std::string>& service_paths, mode_t mode,
                                                          const Clock& clock);
  // Ends the thread and removes the socket files.
  ~DescriptorInbox();
  DescriptorInbox(const DescriptorInbox&) = delete;
  DescriptorInbox& operator=(const DescriptorInbox&) = delete;

  // Returns the descriptors that came with the ticket, in order, once. kNotFound when there are none;
  // kInvalidArgument for a ticket of another length or with a number of descriptors other than `count`, which are
  // then dropped.
  StatusOr<std::vector<UniqueFd>> Take(std::string_view ticket, size_t count);
  // Closes descriptors that were received here. Closing the last descriptor of memory frees it, which takes time
  // proportional to its size, which the sender chose: so only this object's own thread closes descriptors.
  void Drop(std::vector<UniqueFd> fds);

 private:
  // Maximum number of descriptors waiting to be closed; further datagrams wait in their socket.
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
  // Reads a bounded number of datagrams. The caller holds the mutex. Returns false when there are no more at the
  // moment.
  bool ReadSome(int socket);
  void Keep(std::string_view ticket, uint32_t uid, std::vector<UniqueFd> fds);
  void DropAll(std::vector<UniqueFd>& fds);
  std::list<Kept>::iterator Forget(std::list<Kept>::iterator kept);
  void DropOld();

  const Clock& clock_;
  std::vector<Socket> sockets_;
  UniqueFd stop_;  // An eventfd.
  std::mutex mutex_;
  std::list<Kept> kept_;           // Oldest first.
  std::vector<UniqueFd> dropped_;  // The thread closes them, without the mutex.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_DESCRIPTOR_INBOX_H_
