// SPDX-License-Identifier: Apache-2.0
#include "server/front/descriptor_inbox.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "server/process/unix_socket.h"

namespace hpvm::server {
namespace {

// Maximum number of descriptors in one message (SCM_MAX_FD).
constexpr size_t kMessageFdsMax = 253;
// Number of datagrams read while holding the mutex, before the thread checks whether it should end.
constexpr int kBurst = 32;
// Interval at which old descriptors are dropped.
constexpr int kRoundMs = 1'000;

struct Datagram {
  std::string_view text;
  uint32_t uid = UINT32_MAX;
  std::vector<UniqueFd> fds;
};

// Takes ownership of everything that came with a message before examining it.
void ReadControl(msghdr& message, Datagram& datagram) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) {
      continue;
    }
    if (part->cmsg_type == SCM_RIGHTS) {
      const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
        datagram.fds.emplace_back(fd);
      }
    } else if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(part), sizeof(credentials));
      datagram.uid = credentials.uid;
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<DescriptorInbox>> DescriptorInbox::Start(const std::vector<std::string>& service_paths,
                                                                  mode_t mode, const Clock& clock) {
  std::unique_ptr<DescriptorInbox> inbox(new DescriptorInbox(clock));
  for (const std::string& service_path : service_paths) {
    std::string path = service_path + kMemorySocketSuffix;
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, BindDatagramUnix(path, mode));
    const int one = 1;
    if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) != 0) {
      return FromErrno(errno, "Asking for credentials on \"unix:" + path + "\"");
    }
    inbox->sockets_.push_back({std::move(path), std::move(fd)});
  }
  inbox->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (inbox->stop_.get() < 0) {
    return FromErrno(errno, "Making an eventfd");
  }
  inbox->thread_ = std::thread([made = inbox.get()] { made->Loop(); });
  return inbox;
}

DescriptorInbox::~DescriptorInbox() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    // The write cannot fail: nobody else writes to the eventfd.
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  for (const Socket& socket : sockets_) {
    unlink(socket.path.c_str());
  }
}

void DescriptorInbox::Loop() {
  std::vector<pollfd> waiting;
  waiting.push_back({stop_.get(), POLLIN, 0});
  for (const Socket& socket : sockets_) {
    waiting.push_back({socket.fd.get(), POLLIN, 0});
  }
  while (true) {
    if (poll(waiting.data(), waiting.size(), kRoundMs) < 0 && errno != EINTR) {
      return;
    }
    if ((waiting[0].revents & POLLIN) != 0) {
      return;
    }
    std::vector<UniqueFd> gone;  // Before the lock, so closed after it.
    const std::lock_guard lock(mutex_);
    DropOld();
    for (const Socket& socket : sockets_) {
      ReadSome(socket.fd.get());
    }
    gone.swap(dropped_);
  }
}

void DescriptorInbox::Drop(std::vector<UniqueFd> fds) {
  const std::lock_guard lock(mutex_);
  DropAll(fds);
}

bool DescriptorInbox::ReadSome(int socket) {
  for (int count = 0; count < kBurst && dropped_.size() < kDroppedMax; ++count) {
    char text[kMemoryTicketBytes + 1];
    // Room for everything that one message can carry; the kernel closes what does not fit, on this thread.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kMessageFdsMax * sizeof(int))];
    iovec part{text, sizeof(text)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
      return false;
    }
    Datagram datagram;
    datagram.text = {text, static_cast<size_t>(got)};
    ReadControl(message, datagram);
    if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 && !datagram.fds.empty() &&
        datagram.fds.size() <= kFdsMax && datagram.text.size() == kMemoryTicketBytes) {
      Keep(datagram.text, datagram.uid, std::move(datagram.fds));
    } else {
      DropAll(datagram.fds);
    }
  }
  return true;
}

void DescriptorInbox::DropAll(std::vector<UniqueFd>& fds) {
  std::move(fds.begin(), fds.end(), std::back_inserter(dropped_));
}

void DescriptorInbox::Keep(std::string_view ticket, uint32_t uid, std::vector<UniqueFd> fds) {
  if (std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.ticket == ticket; })) {
    DropAll(fds);  // The ticket belongs to the first sender.
    return;
  }
  const auto is_theirs = [&](const Kept& kept) { return kept.uid == uid; };
  if (std::count_if(kept_.begin(), kept_.end(), is_theirs) >= static_cast<ptrdiff_t>(kKeptOfOneMax)) {
    Forget(std::find_if(kept_.begin(), kept_.end(), is_theirs));
  }
  if (kept_.size() < kKeptMax) {
    kept_.push_back({std::string(ticket), uid, clock_.Now() + kKept, std::move(fds)});
  } else {
    DropAll(fds);
  }
}

std::list<DescriptorInbox::Kept>::iterator DescriptorInbox::Forget(std::list<Kept>::iterator kept) {
  DropAll(kept->fds);
  return kept_.erase(kept);
}

void DescriptorInbox::DropOld() {
  while (!kept_.empty() && kept_.front().until <= clock_.Now()) {
    Forget(kept_.begin());
  }
}

StatusOr<std::vector<UniqueFd>> DescriptorInbox::Take(std::string_view ticket, size_t count) {
  if (ticket.size() != kMemoryTicketBytes) {
    return InvalidArgument("The ticket has " + std::to_string(ticket.size()) + " bytes; it needs " +
                           std::to_string(kMemoryTicketBytes) + ".");
  }
  const std::lock_guard lock(mutex_);
  DropOld();
  const auto find = [&] {
    return std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.ticket == ticket; });
  };
  // The datagram was sent before the call, so it is here, or in a socket that the thread has not read yet.
  auto found = find();
  for (size_t i = 0; i < sockets_.size() && found == kept_.end(); ++i) {
    ReadSome(sockets_[i].fd.get());
    found = find();
  }
  if (found == kept_.end()) {
    return NotFound("No descriptor came with this ticket to the service's socket \"" + std::string("<path>") +
                    kMemorySocketSuffix + "\", or it was taken already, or it is older than " +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kKept).count()) + " s.");
  }
  if (found->fds.size() != count) {
    const size_t came = found->fds.size();
    Forget(found);
    return InvalidArgument("The ticket came with " + std::to_string(came) + " descriptors; this call needs " +
                           std::to_string(count) + ".");
  }
  std::vector<UniqueFd> fds = std::move(found->fds);
  kept_.erase(found);
  return fds;
}

}  // namespace hpvm::server
