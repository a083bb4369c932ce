// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/v8.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

extern char** environ;

namespace hpvm::diff {
namespace {

constexpr int kReplyMsMax = 20'000;
constexpr uint32_t kRefused = 1000;  // A reply's code in place of a trap's; a message follows.

// Little-endian words, then bytes padded to whole words.
class Message {
 public:
  void Word(uint64_t value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + 8);
    std::memcpy(bytes_.data() + at, &value, 8);
  }
  void Data(std::span<const uint8_t> data) {
    Word(data.size());
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
  }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace

StatusOr<std::unique_ptr<V8>> V8::Start(const std::string& server_script) {
  signal(SIGPIPE, SIG_IGN);
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    return FromErrno(errno, "Creating a pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  // The baseline compiler alone: fast for code that runs once, and as different from ours as possible.
  const char* arguments[] = {
      "node", "--liftoff", "--no-wasm-tier-up", "--experimental-wasm-memory64", server_script.c_str(), nullptr};
  std::unique_ptr<V8> v8(new V8);
  const int error = posix_spawnp(&v8->pid_, "node", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  v8->to_ = to[1];
  v8->from_ = from[0];
  if (error != 0) {
    v8->pid_ = -1;
    return Unavailable("There is no \"node\" on the PATH, so V8 is left out.");
  }
  return v8;
}

V8::~V8() {
  close(to_);
  close(from_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

Status V8::Fail(const std::string& what) {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  return Internal("V8's process " + what + ".");
}

Status V8::Send(const Run& run) {
  Message message;
  for (uint32_t extent : run.launch.extent) {
    message.Word(extent);
  }
  for (uint32_t group : run.launch.group) {
    message.Word(group);
  }
  message.Word(run.pages);
  message.Word(run.pages_max);
  message.Word(run.is_memory64 ? 1 : 0);
  message.Word(run.launch.params.size());
  for (size_t k = 0; k < run.launch.params.size(); ++k) {
    const Param& param = run.launch.params[k];
    message.Word(param.is_buffer ? 8 : static_cast<uint64_t>(param.type));
    message.Word(param.is_buffer ? run.space.base[k] : param.bits);
    message.Data(param.bytes);
  }
  message.Data(run.module);
  const auto length = static_cast<uint32_t>(message.bytes().size());
  std::vector<uint8_t> all(4);
  std::memcpy(all.data(), &length, 4);
  all.insert(all.end(), message.bytes().begin(), message.bytes().end());
  for (size_t done = 0; done < all.size();) {
    const ssize_t wrote = pid_ > 0 ? write(to_, all.data() + done, all.size() - done) : -1;
    if (wrote <= 0) {
      return Fail("does not read");
    }
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

Status V8::ReadAll(void* into, size_t bytes) {
  auto* at = static_cast<uint8_t*>(into);
  while (bytes > 0) {
    pollfd ready{from_, POLLIN, 0};
    const int polled = pid_ > 0 ? poll(&ready, 1, kReplyMsMax) : 0;
    if (polled == 0) {
      return Fail("does not answer within 20 s");
    }
    const ssize_t got = read(from_, at, bytes);
    if (got <= 0) {
      return Fail("has ended");
    }
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// code, instance's linear index, then the buffers; or kRefused, the length and a message.
StatusOr<Outcome> V8::Receive(const LaunchSpec& launch) {
  uint32_t head[2];
  HPVMD_RETURN_IF_ERROR(ReadAll(head, sizeof(head)));
  if (head[0] == kRefused) {
    std::string text(head[1], '\0');
    HPVMD_RETURN_IF_ERROR(ReadAll(text.data(), text.size()));
    return InvalidArgument(text);
  }
  Outcome outcome;
  outcome.trap.code = static_cast<ir::TrapCode>(head[0]);
  outcome.trap.instance = {head[1] % launch.extent[0], head[1] / launch.extent[0] % launch.extent[1],
                           head[1] / launch.extent[0] / launch.extent[1]};
  for (const Param& param : launch.params) {
    std::vector<uint8_t>& buffer = outcome.buffers.emplace_back(param.bytes.size());
    HPVMD_RETURN_IF_ERROR(ReadAll(buffer.data(), buffer.size()));
  }
  return outcome;
}

}  // namespace hpvm::diff
