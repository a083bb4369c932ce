// SPDX-License-Identifier: Apache-2.0
#include "server/front/front.h"

#include <errno.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/thread_watch.h"
#include "server/front/session_table.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr size_t kEventsMax = 64;
// Interval at which late connections are looked for.
constexpr int kRoundMs = 500;

// Limit of a peer's resets, as a multiple of a connection's.
constexpr uint64_t kPeerResets = 2;
// Maximum number of remembered peers without a connection, and how long they are remembered.
constexpr size_t kPeersMax = 4'096;
constexpr Duration kPeerKept = std::chrono::seconds(5);

}  // namespace

Front::Front(const FrontOptions& options, std::unique_ptr<TlsWatch> tls, Give give, Observer& observer,
             const Clock& clock)
    : options_(options), tls_(std::move(tls)), give_(std::move(give)), clock_(clock) {
  ear_->observer = &observer;
}

Front::~Front() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }
  std::lock_guard lock(ear_->mutex);
  ear_->observer = nullptr;
}

Status Front::Start() {
  HPVMD_RETURN_IF_ERROR(SessionTable::Check());
  if (tls_ != nullptr) {
    const std::optional<TlsFiles> files = tls_->TakeChanged();
    HPVMD_ASSIGN_OR_RETURN(context_, MakeTlsContext(files.value_or(TlsFiles()), options_.client_certificates));
  }
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  if (!epoll_.valid() || !wake_.valid() || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return FromErrno(errno, "Creating the event loop for new connections");
  }
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void Front::Take(AcceptedConnection connection) {
  Waiting waiting;
  waiting.deadline = connection.facts.accepted + options_.handshake_max;
  waiting.connection = std::move(connection);
  waiting.connection.facts.is_encrypted = !waiting.connection.facts.is_unix && tls_ != nullptr;
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(waiting));
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void Front::Loop() {
  std::array<epoll_event, kEventsMax> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kRoundMs);
    {
      std::lock_guard lock(mutex_);
      if (stop_) {
        break;
      }
    }
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      fd == wake_.get() ? LetIn() : Go(fd);
    }
    EndLate(clock_.Now());
  }
  waiting_.clear();
}

void Front::LetIn() {
  uint64_t ignored = 0;
  (void)!read(wake_.get(), &ignored, sizeof(ignored));
  std::deque<Waiting> arrived;
  {
    std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
  }
  RenewContext();
  for (Waiting& waiting : arrived) {
    const WatchedItem item("front", "connection");
    const int fd = waiting.fd();
    const bool is_encrypted = waiting.connection.facts.is_encrypted;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.fd = fd;
    if (is_encrypted) {
      waiting.ssl = MakeTlsSession(context_.get(), fd);
    }
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0 || (is_encrypted && waiting.ssl == nullptr)) {
      Refuse(std::move(waiting), "handshake", "There is no memory for the connection.");
      continue;
    }
    waiting_.emplace(fd, std::move(waiting));  // The first event comes at once, because there is room to write.
  }
}

void Front::Go(int fd) {
  const auto found = waiting_.find(fd);
  if (found == waiting_.end()) {
    return;
  }
  const WatchedItem item("front", "handshake");
  const Step step = Advance(found->second);
  if (step == Step::kWait) {
    return;
  }
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (step == Step::kReady) {
    HandOver(std::move(waiting));
  } else if (step == Step::kGone) {
    return;  // A port probe sends nothing, and is not worth reporting.
  } else if (step == Step::kNotHttp2) {
    Refuse(std::move(waiting), NameOf(FrameFault::kPreface), SentenceOf(FrameFault::kPreface));
  } else {
    Refuse(std::move(waiting), "handshake", "The TLS handshake failed.");
  }
}

Front::Step Front::Advance(Waiting& waiting) {
  char first = 0;
  if (recv(waiting.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0 && !waiting.is_secure) {
    return Step::kGone;
  }
  if (waiting.ssl != nullptr && !waiting.is_secure) {
    if (const Step step = Handshake(waiting); step != Step::kReady) {
      return step;
    }
  }
  return AwaitPreface(waiting);
}

Front::Step Front::Handshake(Waiting& waiting) {
  SSL* ssl = waiting.ssl.get();
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl);
  if (done != 1) {
    const int why = SSL_get_error(ssl, done);
    ERR_clear_error();
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? Step::kWait : Step::kHandshakeFailed;
  }
  if (!IsHttp2(ssl)) {
    return Step::kHandshakeFailed;
  }
  waiting.is_secure = true;
  waiting.connection.facts.certificate_names = CertificateNames(ssl);
  SSL_set_read_ahead(ssl, 1);
  return Step::kReady;
}

// Peeks at the first bytes and consumes nothing. Behind TLS any bytes suffice: the session examines them.
Front::Step Front::AwaitPreface(const Waiting& waiting) {
  std::array<char, kHttp2Preface.size()> begin;
  const ssize_t count = recv(waiting.fd(), begin.data(), begin.size(), MSG_PEEK | MSG_DONTWAIT);
  if (count <= 0) {
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? Step::kWait : Step::kNotHttp2;
  }
  if (waiting.ssl != nullptr) {
    return Step::kReady;
  }
  const std::string_view said(begin.data(), static_cast<size_t>(count));
  return said == kHttp2Preface ? Step::kReady : kHttp2Preface.starts_with(said) ? Step::kWait : Step::kNotHttp2;
}

void Front::HandOver(Waiting waiting) {
  UniqueFd fd = std::move(waiting.connection.fd);
  std::shared_ptr<PeerCalls> calls = CallsOf(waiting.connection.facts.who);
  auto session = std::make_shared<Session>(
      fd.get(), std::move(waiting.connection.facts), std::move(waiting.connection.place), options_.frames,
      std::move(calls), std::move(waiting.ssl),
      [ear = ear_](const Session& session, FrameFault fault) {
        Tell(ear, session.facts(), NameOf(fault), SentenceOf(fault));
      },
      clock_);
  if (!SessionTable::Get().Add(std::move(session))) {
    LogError("A connection was refused: its descriptor is too large", {{"fd", std::to_string(fd.get())}});
    return;
  }
  give_(std::move(fd));
}

std::shared_ptr<PeerCalls> Front::CallsOf(const std::string& who) {
  const Time now = clock_.Now();
  const bool is_full = peers_.size() >= kPeersMax;
  std::erase_if(peers_, [&](const auto& known) {
    return !known.second.calls.is_lent() && (is_full || now - known.second.seen > kPeerKept);
  });
  Peer& peer = peers_[who];
  peer.seen = now;
  if (peer.calls.get() == nullptr) {
    peer.calls =
        Lendable(std::make_shared<PeerCalls>(options_.calls_per_peer, kPeerResets * options_.frames.resets_per_second));
  }
  return peer.calls.Lend();
}

void Front::Refuse(Waiting waiting, std::string_view reason, std::string_view why) {
  Tell(ear_, waiting.connection.facts, reason, why);
  EndInOrder(waiting.fd());
}

void Front::EndLate(Time now) {
  std::vector<int> late;
  for (const auto& [fd, waiting] : waiting_) {
    if (waiting.deadline <= now) {
      late.push_back(fd);
    }
  }
  for (const int fd : late) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    Refuse(std::move(waiting_.extract(fd).mapped()), "silent", "The client sent nothing within limits.handshake_ms.");
  }
  SessionTable::Get().EndLate(now);
}

void Front::RenewContext() {
  const std::optional<TlsFiles> files = tls_ == nullptr ? std::nullopt : tls_->TakeChanged();
  if (!files.has_value()) {
    return;
  }
  StatusOr<SslContext> context = MakeTlsContext(*files, options_.client_certificates);
  if (context.ok()) {
    context_ = *std::move(context);
  } else {
    LogError("The TLS files were rejected: OpenSSL cannot use them", {{"error", Message(context.status())}});
  }
}

void Front::Tell(const std::shared_ptr<Ear>& ear, const ConnectionFacts& facts, std::string_view reason,
                 std::string_view why) {
  // All Unix sockets have the same peer name.
  const std::string peer = facts.is_unix ? facts.peer + facts.who : facts.peer;
  LogWarning("A connection was ended", {{"peer", peer}, {"reason", std::string(reason)}, {"why", std::string(why)}});
  std::lock_guard lock(ear->mutex);
  if (ear->observer != nullptr) {
    ear->observer->On(events::ConnectionEnded{reason});
  }
}

}  // namespace hpvm::server
