// SPDX-License-Identifier: Apache-2.0
#include "server/process/service_notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace hpvm::server {
namespace {

using ::testing::StartsWith;

// A manager that listens on `path`, which begins with a zero byte when it is abstract.
class Manager {
 public:
  explicit Manager(const std::string& path) : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path));
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())),
              0);
  }
  // Returns an empty text when there was no message.
  std::string Next() {
    char text[512];
    const ssize_t size = recv(socket_.get(), text, sizeof(text), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  UniqueFd socket_;
};

class ServiceNotifierTest : public ::testing::Test {
 protected:
  ~ServiceNotifierTest() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
      unsetenv(name);
    }
  }
};

// Each message follows the protocol, by a path and by an abstract name.
TEST_F(ServiceNotifierTest, SendsMessages) {
  const std::string name = "hpvm-notify-test-" + std::to_string(getpid());
  const std::string path = "/tmp/" + name;
  for (const auto& [variable, address] : {std::pair(path, path), std::pair("@" + name, std::string(1, '\0') + name)}) {
    SCOPED_TRACE(variable);
    Manager manager(address);
    setenv("NOTIFY_SOCKET", variable.c_str(), 1);
    ServiceNotifier notifier;
    notifier.Ready("Serves on\nREADY=0");
    EXPECT_EQ(manager.Next(), "READY=1\nSTATUS=Serves on READY=0");
    notifier.Reloading();
    EXPECT_THAT(manager.Next(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    notifier.Alive();
    EXPECT_EQ(manager.Next(), "WATCHDOG=1");
    notifier.Stopping("Draining");
    EXPECT_EQ(manager.Next(), "STOPPING=1\nSTATUS=Draining");
    EXPECT_EQ(manager.Next(), "");
  }
  unlink(path.c_str());
}

// Without a manager, with a wrong address, or after the manager has gone, nothing happens.
TEST_F(ServiceNotifierTest, WorksAlone) {
  for (const char* address : {"", "relative", "/tmp/hpvm-notify-nobody-listens"}) {
    setenv("NOTIFY_SOCKET", address, 1);
    ServiceNotifier notifier;
    notifier.Ready("x");
    EXPECT_EQ(notifier.watchdog(), kNever);
  }
}

// The watchdog's period is halved, and applies only to the process that it names.
TEST_F(ServiceNotifierTest, ReadsTheWatchdog) {
  struct Case {
    const char* period;
    std::string pid;
    Duration want;
  };
  const Case cases[] = {{"30000000", std::to_string(getpid()), std::chrono::seconds(15)},
                        {"30000000", "", std::chrono::seconds(15)},
                        {"30000000", "1", kNever},
                        {"0", "", kNever},
                        {"x", "", kNever},
                        {"-5", "", kNever}};
  setenv("NOTIFY_SOCKET", "/tmp/hpvm-notify-nobody-listens", 1);
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.period) + " " + c.pid);
    setenv("WATCHDOG_USEC", c.period, 1);
    c.pid.empty() ? unsetenv("WATCHDOG_PID") : setenv("WATCHDOG_PID", c.pid.c_str(), 1);
    EXPECT_EQ(ServiceNotifier().watchdog(), c.want);
  }
}

}  // namespace
}  // namespace hpvm::server
