// SPDX-License-Identifier: Apache-2.0
// The global options for credentials. No option takes a secret itself, because everybody on the machine can read
// command lines.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <string_view>

#include "client/ctl/options.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

// Returns the variable's value, if set, and unsets it, because child processes do not need it.
std::string TakeVariable(const char* name) {
  const char* value = getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

void WarnOfReaders(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    fprintf(stderr, "hpvmctl: warning: others may read the token file \"%s\" (mode %04o); run chmod 600 on it.\n",
            Printable(path).c_str(), static_cast<unsigned>(facts.st_mode & 07777));
  }
}

void AddFile(CLI::App& app, const char* name, std::string& file, const char* variable, const std::string& description) {
  AddWord(app, name, file, description + " (or $" + variable + ")");
}

// The option has precedence over the variable. The variable is ignored for a Unix socket: it names TLS files meant
// for another server.
std::string FileOf(const std::string& option, const char* variable, bool is_unix) {
  const std::string value = TakeVariable(variable);
  return option.empty() && !is_unix ? value : option;
}

}  // namespace

bool HasSecretOption(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--token" || word.starts_with("--token=")) {
      fputs(
          "hpvmctl: there is no option --token: every user of this machine can read a command line while it runs,\n"
          "and the shell's history keeps it. Use --token-file FILE, $HPVM_TOKEN_FILE or $HPVM_TOKEN, and revoke\n"
          "this token (hpvmctl token revoke).\n",
          stderr);
      return true;
    }
  }
  return false;
}

void AddCredentialOptions(CLI::App& app, Globals& globals) {
  AddWord(app, "--token-file", globals.token_file,
          "File with the token that identifies you to the server (or $HPVM_TOKEN_FILE; $HPVM_TOKEN is a token itself)");
  AddFile(app, "--ca", globals.ca_file, "HPVM_CA",
          "File of the authority that signed the server's certificate (PEM); default: the system's authorities");
  AddFile(app, "--cert", globals.certificate_file, "HPVM_CERT", "File with your certificate (PEM); needs --key");
  AddFile(app, "--key", globals.key_file, "HPVM_KEY", "File with the private key of --cert (PEM)");
  AddFile(app, "--server-name", globals.server_name, "HPVM_SERVER_NAME",
          "Name in the server's certificate, if it is not the host of the address");
}

Credentials CredentialsOf(const Globals& globals, std::string_view endpoint) {
  Credentials credentials;
  const std::string token = TakeVariable("HPVM_TOKEN"), token_file = TakeVariable("HPVM_TOKEN_FILE");
  if (!globals.token_file.empty()) {
    credentials.token_file = globals.token_file;
  } else if (!token.empty()) {
    credentials.token = token;
  } else {
    credentials.token_file = token_file;
  }
  if (!credentials.token_file.empty()) {
    WarnOfReaders(credentials.token_file);
  }
  const bool is_unix = endpoint.starts_with("unix:");
  credentials.ca_file = FileOf(globals.ca_file, "HPVM_CA", is_unix);
  credentials.certificate_file = FileOf(globals.certificate_file, "HPVM_CERT", is_unix);
  credentials.key_file = FileOf(globals.key_file, "HPVM_KEY", is_unix);
  credentials.server_name = FileOf(globals.server_name, "HPVM_SERVER_NAME", is_unix);
  return credentials;
}

}  // namespace hpvm::ctl
