// SPDX-License-Identifier: Apache-2.0
// PostgresServer is a real PostgreSQL server for tests, with a folder of its own and a Unix socket only.
#ifndef HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_
#define HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_

#include <sys/types.h>

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
};

// Making one takes about a second, so a test program makes one and its tests share it. Used by one thread. The server
// is killed when the thread that started it ends, in whatever way, so that it never outlives a test. Under root it runs
// as the user postgres, or nobody, because PostgreSQL refuses root.
class PostgresServer {
 public:
  // True when initdb and postgres are on this machine.
  static bool IsInstalled();

  // Makes the folder and starts the server. Everybody may connect without a password, except the role "guarded", which
  // a test may make.
  static StatusOr<std::unique_ptr<PostgresServer>> Make(const PostgresServerOptions& options = {});
  // Returns the server that the tests of this program share, which runs, and is made by the first call. Borrowed until
  // the program ends.
  static StatusOr<PostgresServer*> Shared();
  // Stops the server and removes the folder.
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;

  // Starts a server that was stopped or killed, and waits until it accepts connections.
  Status Start();
  // Ends all sessions and waits for the end of the server, which keeps its data.
  void StopFast();
  // Lets the server crash, and waits for its end.
  void Kill();
  Status Restart();
  bool is_running() const { return process_ > 0; }

  // Returns the connection string of a database for the superuser.
  std::string dsn(std::string_view database = "postgres") const;
  // Makes an empty database, in place of one that has the name already.
  Status CreateDatabase(const std::string& name);
  // Runs statements in the database "postgres", each alone.
  Status Run(const std::vector<std::string>& statements);
  // Sends a signal to the server's first process, such as SIGSTOP.
  void Signal(int signal) const;

 private:
  PostgresServer(std::string folder, std::string programs)
      : folder_(std::move(folder)), programs_(std::move(programs)) {}
  Status MakeFolder(const PostgresServerOptions& options);
  // Starts a program with this server's user, whose output goes to the log. Returns its process, or -1 with errno.
  pid_t Spawn(const std::vector<std::string>& arguments) const;
  // Returns an error that ends with the last lines of the log.
  Status Failed(std::string_view what) const;
  void End(int signal);

  const std::string folder_;
  const std::string programs_;
  pid_t process_ = -1;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_POSTGRES_TESTING_POSTGRES_SERVER_H_
