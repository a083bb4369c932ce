// SPDX-License-Identifier: Apache-2.0
// PostgresServer is a real PostgreSQL server for tests, with a folder of its own and a Unix socket only.
#ifndef HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_
#define HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hpvm::server::cluster {

struct PostgresServerOptions {
  bool has_fsync = false;
  // Settings of postgresql.conf, such as {"max_connections", "10"}.
  std::map<std::string, std::string> settings;
  // Puts the data on a disk in memory of this size, which only this thread and its children see. 0: in /tmp.
  uint64_t disk_bytes = 0;
};

// Making one takes about a second, so a test program makes one and its tests share it. Used by one thread. The server
// is killed when the thread that started it ends, in whatever way, so that it never outlives a test. Under root it runs
// as the user postgres, or nobody, because PostgreSQL refuses root.
class PostgresServer {
 public:
  // True when initdb and postgres are on this machine.
  static bool IsInstalled();

  // Makes the folder and starts the server. Everybody may connect without a password, except the role "guarded", which
  // a test may make. kFailedPrecondition: the system does not let this process mount the disk in memory.
  static StatusOr<std::unique_ptr<PostgresServer>> Make(const PostgresServerOptions& options = {});
  // Returns the server that the tests of this program share, which runs, and is made by the first call. Borrowed until
  // the program ends.
  static StatusOr<PostgresServer*> Shared();
  // Makes a server that copies this one, which runs, and then follows its log by streaming. It accepts reads only.
  StatusOr<std::unique_ptr<PostgresServer>> MakeStandby();
  // Stops the server and removes the folder.
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;

  // Starts a server that was stopped or killed, and waits until it accepts connections.
  Status Start();
  // Ends all sessions and waits for the end of the server, which keeps its data.
  void StopFast();
  // Lets the server crash, and waits for its end.
  void Kill();
  // Ends all processes of the server at once, as when its machine loses power: none of them does or answers anything.
  void KillAll();
  Status Restart();
  bool is_running() const { return process_ > 0; }

  // Waits until the standby streams. With `is_synchronous`, each COMMIT waits for the standby's disk from then on.
  Status WaitForStandby(bool is_synchronous);
  // Lets a standby follow no longer, as when the network between the two breaks.
  Status StopReceiving();
  // Makes a standby accept writes, and waits for that.
  Status Promote();

  // Where the socket is, and the data.
  const std::string& folder() const { return folder_; }
  std::string data() const { return folder_ + "/data"; }
  // Returns the connection string of a database for the superuser.
  std::string dsn(std::string_view database = "postgres") const;
  // Makes an empty database, in place of one that has the name already.
  Status CreateDatabase(const std::string& name);
  // Runs statements in the database "postgres", each alone.
  Status Run(const std::vector<std::string>& statements);
  // Runs a statement there and returns the first value of its first row; empty when there is none.
  StatusOr<std::string> Ask(const std::string& statement);
  // Sends a signal to the server's first process, such as SIGSTOP.
  void Signal(int signal) const;

 private:
  PostgresServer(std::string folder, std::string programs)
      : folder_(std::move(folder)), programs_(std::move(programs)) {}
  // Makes an object without data, and its folder.
  static StatusOr<std::unique_ptr<PostgresServer>> MakeFolder();
  Status MakeDisk(uint64_t bytes);
  Status MakeData(const PostgresServerOptions& options);
  Status CopyData(const PostgresServer& primary);
  // Runs a program to its end. `what` is for the error.
  Status RunProgram(const std::vector<std::string>& arguments, std::string_view what) const;
  // Waits until the statement's answer is "t".
  Status WaitUntil(const std::string& statement);
  // Starts a program with this server's user, whose output goes to the log. Returns its process, or -1 with errno.
  pid_t Spawn(const std::vector<std::string>& arguments) const;
  // Returns an error that ends with the last lines of the log.
  Status Failed(std::string_view what) const;
  void End(int signal);

  const std::string folder_;
  const std::string programs_;
  pid_t process_ = -1;
  bool has_disk_ = false;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_
