// SPDX-License-Identifier: Apache-2.0
// Exhausts every kind of resource. Each probe stops at a bound of its own, so that a machine without the limit
// survives.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/io/fd.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

std::string Descriptors(Task& task) {
  std::vector<UniqueFd> held;
  const auto wanted = static_cast<size_t>(task.Number("count"));
  while (held.size() < wanted) {
    UniqueFd memory(memfd_create("fill", MFD_CLOEXEC));
    if (!memory.valid()) {
      return Refused() + " after " + std::to_string(held.size());
    }
    held.push_back(std::move(memory));
  }
  return Took(std::to_string(held.size()));
}

std::atomic<bool> g_threads_end{false};
// Makes threads by the system call itself, with stacks of their own: a failure of std::thread would end the process.
std::string Threads(Task& task) {
  const auto wanted = static_cast<size_t>(task.Number("count"));
  std::vector<pthread_t> held;
  int error = 0;
  g_threads_end = false;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  while (held.size() < wanted && error == 0) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, [](void*) -> void* {
      while (!g_threads_end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return nullptr;
    }, nullptr);
    if (error == 0) {
      held.push_back(thread);
    }
  }
  const std::string count = std::to_string(held.size());
  g_threads_end = true;
  for (const pthread_t thread : held) {
    pthread_join(thread, nullptr);
  }
  errno = error;
  return error == 0 ? Took(count) : Refused() + " after " + count;
}

std::string Memory(Task& task) {
  const auto wanted = static_cast<uint64_t>(task.Number("bytes"));
  constexpr uint64_t kPiece = 16 << 20;
  std::vector<void*> held;
  uint64_t got = 0;
  while (got < wanted) {
    void* piece = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) {
      break;
    }
    memset(piece, 1, kPiece);
    held.push_back(piece);
    got += kPiece;
  }
  const std::string answer = got < wanted ? Refused() + " after " + std::to_string(got) : Took(std::to_string(got));
  for (void* piece : held) {
    munmap(piece, kPiece);
  }
  return answer;
}

// In one memfd: memory that no limit of the process counts as its own.
std::string SharedMemory(Task& task) {
  UniqueFd memory(memfd_create("fill", MFD_CLOEXEC));
  const auto wanted = static_cast<uint64_t>(task.Number("bytes"));
  std::vector<char> piece(1 << 20, 1);
  for (uint64_t got = 0; got < wanted; got += piece.size()) {
    if (pwrite(memory.get(), piece.data(), piece.size(), static_cast<off_t>(got)) !=
        static_cast<ssize_t>(piece.size())) {
      return Refused() + " after " + std::to_string(got);
    }
  }
  return Took(std::to_string(wanted));
}

// The daemon reads standard error: lines that look like its own, terminal codes, and very many of them.
std::string Log(Task& task) {
  const std::string line = task.Text("text") + "\n";
  const auto bytes = static_cast<uint64_t>(task.Number("bytes"));
  const std::string raw = "\x1b[2J\x1b]0;lab-title\x07\r" + line + std::string("\0\x01\xff\xfe", 4) + "\n";
  uint64_t put = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (put < bytes && std::chrono::steady_clock::now() < end) {
    const ssize_t wrote = write(STDERR_FILENO, raw.data(), raw.size());
    if (wrote < 0) {
      break;
    }
    put += static_cast<uint64_t>(wrote);
  }
  return "refused: written " + std::to_string(put);
}

// Changes the size of all memory that the daemon shared; a smaller size would kill processes that map it.
std::string ResizeShared(Task&) {
  std::string changed;
  int refused = 0;
  for (int fd = 4; fd < 256; ++fd) {
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SEAL) == 0) {
      continue;  // Its own, for example created by this process.
    }
    if (ftruncate(fd, 0) == 0 || ftruncate(fd, 1 << 30) == 0) {
      changed += std::to_string(fd) + " ";
    }
    ++refused;
  }
  errno = EPERM;
  return changed.empty() ? Refused() + " for " + std::to_string(refused) : Took(changed);
}

// Writes into the outputs' shared memory long after the run has been answered.
std::string Scribble(Task& task) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(task.Number("ms"));
  for (const auto& [id, memory] : task.job.memories) {
    if (memory == nullptr || !memory->writable) {
      continue;
    }
    std::thread([memory, end] {
      uint64_t value = 1;
      while (std::chrono::steady_clock::now() < end) {
        for (uint64_t at = 0; at + 8 <= memory->mapping.size(); at += 8, value = value * 6364136223846793005 + 1) {
          memcpy(memory->mapping.data() + at, &value, 8);
        }
      }
    }).detach();
  }
  task.run_kernel = true;
  return "";
}

// Ignores the request to stop, on every available thread.
std::string Spin(Task& task) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(task.Number("ms"));
  std::vector<std::thread> threads;
  std::atomic<uint64_t> sum{0};
  const auto spin = [&] {
    while (std::chrono::steady_clock::now() < end) {
      sum.fetch_add(1, std::memory_order_relaxed);
    }
  };
  for (int64_t i = 1; i < task.Number("threads"); ++i) {
    threads.emplace_back(spin);
  }
  spin();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return Took("its time");
}

constexpr NamedProbe kProbes[] = {
    {"descriptors", Descriptors}, {"threads", Threads}, {"memory", Memory}, {"shared_memory", SharedMemory},
    {"log", Log},                 {"spin", Spin},       {"resize_shared", ResizeShared}, {"scribble", Scribble},
};

}  // namespace

std::span<const NamedProbe> ResourceProbes() { return kProbes; }

}  // namespace hpvm::lab
