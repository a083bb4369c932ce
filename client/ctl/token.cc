// SPDX-License-Identifier: Apache-2.0
// hpvmctl token create|list|revoke. `create` prints the secret of a token once; all other output shows its id.
#include <stdio.h>

#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/tenant_text.h"
#include "client/ctl/text/text.h"

#include "base/clock.h"
#include "base/io/secret_file.h"
#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  v1::Role role = v1::ROLE_USER;
  std::string name, lifetime, output;
  bool replace = false;
  std::vector<std::string> ids;
};

Status Create(const Globals& globals, const Options& options) {
  v1::CreateTokenRequest request;
  request.set_tenant(globals.tenant);
  request.set_role(options.role);
  request.set_name(options.name);
  if (!options.lifetime.empty()) {
    HPVMD_ASSIGN_OR_RETURN(const Duration lifetime, While(ParseDuration(options.lifetime), "reading --lifetime"));
    request.set_lifetime_ns(static_cast<uint64_t>(lifetime.count()));
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  SecretFile file(options.output, options.replace);
  if (!options.output.empty()) {
    const Status opened = file.Open();
    HPVMD_RETURN_IF_ERROR(
        absl::IsAlreadyExists(opened) ? AlreadyExists(Message(opened) + " Give --replace to replace it.") : opened);
  }
  HPVMD_ASSIGN_OR_RETURN(v1::CreateTokenResponse created, Admin(*client).CreateToken(request));
  const v1::Token& token = created.token();
  if (!options.output.empty()) {
    if (const Status written = file.Finish(created.secret()); !written.ok()) {
      // Nobody has received the secret, so the token is not left valid.
      Admin(*client).RevokeToken(token.id()).IgnoreError();
      return While(written, "storing the secret of token " + token.id() + ", which was therefore revoked");
    }
    created.clear_secret();
  }
  fprintf(stderr, "hpvmctl: token %s of tenant %s, role %s, until %s%s\n", Printable(token.id()).c_str(),
          Printable(token.tenant()).c_str(), RoleText(token.role()).c_str(), TimeText(token.expires_unix_ns()).c_str(),
          options.output.empty() ? "; its secret is shown only now" : "");
  const std::string& shown = options.output.empty() ? created.secret() : token.id();
  PrintOne(created, globals.format, shown, [&] { return Printable(shown) + "\n"; });
  return absl::OkStatus();
}

Status List(const Globals& globals, const Options&) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Token> tokens, Admin(*client).ListTokens(globals.tenant));
  PrintList(tokens, globals.format, &v1::Token::id, [&] { return TokensTable(tokens, RealClock().WallNs()); });
  return absl::OkStatus();
}

Status Revoke(const Globals& globals, const Options& options) {
  for (const std::string& id : options.ids) {
    if (id.starts_with("hpvm_")) {
      return InvalidArgument(
          "This is a token's secret, which everybody can now read in the process list; give the token's id (\"tok-…\", "
          "from `hpvmctl token list`).");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  for (const std::string& id : options.ids) {
    HPVMD_RETURN_IF_ERROR(While(Admin(*client).RevokeToken(id), "revoking " + id));
    fprintf(stderr, "hpvmctl: token %s is revoked\n", Printable(id).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddToken(Commands commands) {
  CLI::App* token = commands.app.add_subcommand("token", "Manage tokens: secrets that identify callers of a tenant");
  token->require_subcommand(1);
  CLI::App& create = AddCommand(*token, "create", "Make a token; its secret is shown only then",
                                "Examples:\n"
                                "  hpvmctl token create --tenant blur --output blur.token\n"
                                "  hpvmctl token create --role operator --lifetime 7d --name \"night batch\"");
  Options& options = SetWork(commands, create, Create);
  AddChoice<v1::Role>(create, "--role", options.role,
                      {{"user", v1::ROLE_USER}, {"operator", v1::ROLE_OPERATOR}, {"admin", v1::ROLE_ADMIN}},
                      "What the token allows; at most what the caller may do");
  create.add_option("--name", options.name, "For people");
  AddWord(create, "--lifetime", options.lifetime, "How long the token is valid: 12h, 90d; default: 90 days");
  CLI::Option* output = AddWord(create, "--output", options.output,
                                "Write the secret to this file (mode 0600), and print the id instead");
  create.add_flag("--replace", options.replace, "Replace the file if it exists")->needs(output);
  SetWork(commands,
          AddCommand(*token, "list", "List a tenant's tokens, the newest first",
                     "Examples:\n  hpvmctl token list --tenant blur"),
          List);
  CLI::App& revoke = AddCommand(*token, "revoke", "Revoke tokens, at once and for ever",
                                "Examples:\n  hpvmctl token revoke tok-0193…");
  revoke.add_option("token", SetWork(commands, revoke, Revoke).ids, "Ids of tokens")->required();
}

}  // namespace hpvm::ctl
