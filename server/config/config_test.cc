// SPDX-License-Identifier: Apache-2.0
#include "server/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ConfigTest, RefusesZeroBytes) { EXPECT_EQ(ParseConfig(std::string_view("[\0s]\n", 5)).diagnostics.size(), 1u); }

// Each wrong file yields its fault with the key, the value and the limit.
TEST(ConfigTest, ReportsFaults) {
  struct Case {
    const char* name;
    const char* text;
    const char* want;
  };
  const Case cases[] = {
      {"NotToml", "[server\n", "line 1, column"},
      {"NoName", "[&server]\n", "line 1, column 2: The file is not TOML"},
      {"ControlCharacter", "[server]\n[\x01]\n", "line 2: The file is not TOML: it has a control character"},
      {"BeyondAscii", "# \xce\xbb\n[server]\nx\xce\xbb = 1\n",
       "line 3: The file is not TOML: it has a control character, or"},
      {"BeyondAsciiInNoString", "[jobs]\nkept_max = 0'\xc9\x90'\n", "line 2: The file is not TOML: it has a control"},
      {"BeyondAsciiInAnArray", "x = [\nabc='\xc9\x90']\n", "line 2: The file is not TOML: it has a control"},
      {"BeyondAsciiInLongString", "x = \"\"\"\n\"\"\"\nabc = '\xc9\x90'\n", "line 3: The file is not TOML: it has a"},
      {"BeyondAsciiAfterAQuotedKey", "['a#'.\xc9\x90]\n", "line 1: The file is not TOML: it has a control"},
      {"BeyondAsciiAfterAValue", "kept_max = 1='\xc9\x90'\n", "line 1: The file is not TOML: it has a control"},
      {"UnknownSection", "[sever]\n", "sever: The section is not known. Did you mean \"server\"?"},
      {"FarSection", "[xyzzyxyzzy]\n", "xyzzyxyzzy: The section is not known."},
      {"UnknownKey", "[server]\nlisten_on = \"x\"\n",
       "server.listen_on: The key is not known. Did you mean \"listen\"?"},
      {"NearKey", "[jobs]\nkept_mx = 1\n", "jobs.kept_mx: The key is not known. Did you mean \"kept_max\"?"},
      {"NotASection", "server = 1\n", "server: The value is not a section; write [server]."},
      {"NotAString", "[server]\nlisten = 1\n", "server.listen: The value is not a string."},
      {"NotAnInteger", "[jobs]\nkept_max = \"1\"\n", "jobs.kept_max: The value is not an integer."},
      {"NotABool", "[server]\nreflection = 1\n", "server.reflection: The value is neither true nor false."},
      {"Choice", "[log]\nlevel = \"loud\"\n", "log.level: The value (\"loud\") is none of \"debug\""},
      {"Negative", "[jobs]\nkept_max = -1\n", "(-1) is smaller than the minimum (1)."},
      {"BelowMin", "[jobs]\nkept_max = 0\n", "(0) is smaller than the minimum (1)."},
      {"AboveMax", "[graph]\ndepth_max = 33\n", "graph.depth_max: The value (33) is larger than the limit (32)."},
      {"Joint", "[jobs]\nrunning_max = 15\n", "(16) is larger than jobs.running_max (15)."},
      {"TenantName", "[tenants]\ndefault = \"A b\"\n", "tenants.default: The name (\"A b\")"},
      {"StateDir", "[server]\nstate_dir = \"x\"\n", "is not an absolute path"},
      {"PublicAddress", "[server]\nlisten = \"0.0.0.0:1\"\n", "reachable from other machines, which needs TLS"},
      {"PublicMetrics", "[metrics]\nlisten = \"0.0.0.0:1\"\n", "needs TLS (tls.certificate, tls.key) and credentials"},
      {"PublicWithoutTls", "[server]\nlisten = \"0.0.0.0:1\"\n[auth]\ntokens = true\n", "which needs TLS"},
      {"PublicWithoutAuth", "[server]\nlisten = \"[::]:1\"\n[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n",
       "and credentials (auth.tokens or auth.certificates)"},
      {"PublicWithPeers",
       "[server]\nlisten = \"host:1\"\n[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n[auth]\npeers = true\n",
       "and credentials (auth.tokens or auth.certificates)"},
      {"KeyWithoutCertificate", "[tls]\nkey = \"/k\"\n",
       "tls.certificate: A certificate and its key must be given together"},
      {"CertificateWithoutKey", "[tls]\ncertificate = \"/c\"\n",
       "tls.key: A certificate and its key must be given together"},
      {"ClientsWithoutCa", "[tls]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_certificates = \"required\"\n",
       "tls.client_certificates: Clients' certificates are requested"},
      {"BelievedButNotAsked", "[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n[auth]\ncertificates = true\n",
       "requests none"},
      {"BadPort", "[server]\nlisten = \"127.0.0.1:65536\"\n", "has no port from 0 to 65535"},
      {"RelativeSocket", "[server]\nlisten = \"unix:x.sock\"\n", "needs an absolute path"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ConfigOutcome outcome = ParseConfig(c.text);
    EXPECT_TRUE(HasErrors(outcome.diagnostics));
    EXPECT_THAT(ToString(outcome.diagnostics), HasSubstr(c.want));
  }
  EXPECT_EQ(ParseConfig("[server]\na_ = 1\nb_ = 2\n[log]\nlevel = 3\n").diagnostics.size(), 3u);
}

// Values at the limit are accepted; one beyond it is not.
TEST(ConfigTest, AcceptsEachKeyAtItsLimits) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (!std::holds_alternative<uint64_t Config::*>(key.member)) {
      continue;
    }
    const auto faults = [&](uint64_t value) {
      const ConfigOutcome outcome = ParseConfig("[" + std::string(key.section()) + "]\n" +
                                                std::string(key.name_in_section()) + " = " + std::to_string(value));
      size_t own = 0;
      for (const Diagnostic& fault : outcome.diagnostics) {
        own += fault.message.find("limit (" + std::to_string(key.max)) != std::string::npos ||
               fault.message.find("smaller than the minimum") != std::string::npos;
      }
      return own;
    };
    SCOPED_TRACE(std::string(key.name));
    EXPECT_EQ(faults(key.min), 0u);
    EXPECT_EQ(faults(key.max), 0u);
    EXPECT_EQ(faults(key.max + 1), 1u);
    if (key.min > 0) {
      EXPECT_EQ(faults(key.min - 1), 1u);
    }
  }
}

// Valid addresses and their parsed form.
TEST(ConfigTest, ParsesListenAddresses) {
  const auto addresses = *ParseListen("unix:/run/a.sock, unix:///run/b.sock,127.0.0.1:0,[::1]:5,localhost:50061");
  ASSERT_EQ(addresses.size(), 5u);
  EXPECT_TRUE(addresses[0].is_unix && addresses[1].is_unix && !addresses[2].is_unix);
  EXPECT_EQ(addresses[0].target, "/run/a.sock");
  EXPECT_EQ(addresses[1].target, "/run/b.sock");
  EXPECT_EQ(addresses[3].target, "[::1]:5");
  EXPECT_FALSE(ParseListen(":1").ok());
  for (const char* text : {"0.0.0.0:1", "[::]:1", "192.168.0.1:1", "128.0.0.1:1", "example.com:1"}) {
    EXPECT_TRUE(ParseListen(text)->front().is_public) << text;
  }
  for (const char* text : {"unix:/run/a.sock", "127.0.0.1:0", "[::1]:5", "localhost:50061"}) {
    EXPECT_FALSE(ParseListen(text)->front().is_public) << text;
  }
  EXPECT_FALSE(ParseListen("").ok());
  EXPECT_FALSE(ParseListen("127.0.0.1:1,").ok());
  EXPECT_FALSE(ParseListen("unix:/" + std::string(200, 'a')).ok());
}

// The example file is valid, shows every key once, and shows the defaults.
TEST(ConfigTest, ExampleShowsEveryDefault) {
  const std::string text = ReadFile(HPVMD_SOURCE_DIR "/deploy/hpvmd.toml");
  ASSERT_FALSE(text.empty());
  const ConfigOutcome outcome = ParseConfig(text);
  EXPECT_TRUE(outcome.diagnostics.empty()) << ToString(outcome.diagnostics);
  const Config defaults;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(key.name_in_section()) + " = ")) << key.name;
    // The key's comment says whether a reload suffices.
    const size_t section = text.find("\n[" + std::string(key.section()) + "]");
    const size_t at = text.find("\n" + std::string(key.name_in_section()) + " = ", section);
    const size_t comment = text.rfind('\n', at - 1);
    EXPECT_EQ(text.substr(comment, at - comment).find("Needs a restart.") != std::string::npos, key.needs_restart)
        << key.name;
    std::visit([&](auto member) { EXPECT_EQ(outcome.config.*member, defaults.*member) << key.name; }, key.member);
  }
}

// schemas/config.schema.json matches the table: sections, keys, types, defaults, limits, choices.
TEST(ConfigTest, SchemaMatchesTheTable) {
  const auto schema = nlohmann::json::parse(ReadFile(HPVMD_SOURCE_DIR "/schemas/config.schema.json"));
  const Config defaults;
  std::set<std::string> sections;
  size_t keys = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string section(key.section()), name(key.name_in_section());
    SCOPED_TRACE(section + "." + name);
    sections.insert(section);
    ++keys;
    ASSERT_TRUE(schema["properties"].contains(section));
    EXPECT_FALSE(schema["properties"][section]["additionalProperties"].get<bool>());
    ASSERT_TRUE(schema["properties"][section]["properties"].contains(name));
    const auto& entry = schema["properties"][section]["properties"][name];
    EXPECT_GT(entry["description"].get<std::string>().size(), 10u);
    if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
      EXPECT_EQ(entry["type"], "integer");
      EXPECT_EQ(entry["default"].get<uint64_t>(), defaults.**number);
      EXPECT_EQ(entry["minimum"].get<uint64_t>(), key.min);
      EXPECT_EQ(entry["maximum"].get<uint64_t>(), key.max);
    } else if (const auto* flag = std::get_if<bool Config::*>(&key.member)) {
      EXPECT_EQ(entry["type"], "boolean");
      EXPECT_EQ(entry["default"].get<bool>(), defaults.**flag);
    } else {
      EXPECT_EQ(entry["type"], "string");
      EXPECT_EQ(entry["default"].get<std::string>(), defaults.*std::get<std::string Config::*>(key.member));
      EXPECT_EQ(entry.contains("enum") ? entry["enum"].size() : 0, key.choices.size());
    }
  }
  size_t described = 0;
  for (const auto& section : schema["properties"]) {
    described += section["properties"].size();
  }
  EXPECT_EQ(described, keys);
  EXPECT_EQ(schema["properties"].size(), sections.size());
  EXPECT_FALSE(schema["additionalProperties"].get<bool>());
}

}  // namespace
}  // namespace hpvm::server
