// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/job_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace hpvm::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns true when the published schema accepts the text.
bool SchemaTakes(const std::string& text) {
  static const valijson::Schema* const schema = [] {
    std::ifstream file(HPVMD_SOURCE_DIR "/schemas/job.schema.json");
    std::stringstream whole;
    whole << file.rdbuf();
    const nlohmann::json json = nlohmann::json::parse(whole.str());
    auto* made = new valijson::Schema();
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(valijson::adapters::NlohmannJsonAdapter(json), *made);
    return made;
  }();
  valijson::Validator validator;
  const nlohmann::json json = nlohmann::json::parse(text);
  return validator.validate(*schema, valijson::adapters::NlohmannJsonAdapter(json), nullptr);
}

std::string Refusal(const std::string& text) { return Message(ParseJobFile("a.json", text).status()); }

TEST(JobFileTest, Everything) {
  const std::string text = R"({
      "$schema": "job.schema.json", "hpvm_job": 1, "graph": "sub/blur.json", "modules": {"k": "k.wasm"},
      "inputs": {"A": "a.npy", "f": 2.5, "i": "@index"}, "outputs": {"C": "c-{index}.npy"}, "symbols": {"n": 7},
      "devices": ["cpu:0", "opencl"],
      "repeat": 3, "rotate": {"next": "now"}, "until": "done", "name": "one", "labels": {"night": 7, "who": ""},
      "priority": -5, "deadline": "2h", "attempts": 2, "after": ["job-1:ended", "array-2"], "array": "0-9%2",
      "array_symbol": "n", "key": "night-7", "needs": ["kind:gpu", "label:lab=a"], "on_host": "lab-a",
      "host_memory": "4GiB"})";
  const StatusOr<JobFile> file = ParseJobFile("a.json", text);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(SchemaTakes(text));
  const SubmitArguments& job = file->job;
  const GraphArguments& graph = job.graph.arguments;
  EXPECT_EQ(graph.place.document, "sub/blur.json");
  EXPECT_EQ(graph.place.text, "");
  EXPECT_THAT(file->modules, ElementsAre(std::pair<const std::string, std::string>("k", "k.wasm")));
  EXPECT_THAT(graph.inputs, ElementsAre("A=a.npy", "f=2.5", "i=@index"));
  EXPECT_THAT(graph.outputs, ElementsAre("C=c-{index}.npy"));
  EXPECT_THAT(graph.symbols, ElementsAre("n=7"));
  EXPECT_THAT(graph.devices, ElementsAre("cpu:0", "opencl"));
  EXPECT_EQ(graph.repeat, 3u);
  EXPECT_THAT(graph.rotate, ElementsAre("next=now"));
  EXPECT_EQ(graph.until, "done");
  EXPECT_EQ(job.name, "one");
  EXPECT_THAT(job.graph.labels, ElementsAre("night=7", "who="));
  EXPECT_EQ(job.graph.priority, -5);
  EXPECT_EQ(job.graph.deadline, "2h");
  EXPECT_EQ(job.attempts, 2u);
  EXPECT_THAT(job.after, ElementsAre("job-1:ended", "array-2"));
  EXPECT_EQ(job.array, "0-9%2");
  EXPECT_EQ(job.array_symbol, "n");
  EXPECT_EQ(job.graph.idempotency_key, "night-7");
  EXPECT_THAT(job.needs, ElementsAre("kind:gpu", "label:lab=a"));
  EXPECT_EQ(job.host, "lab-a");
  EXPECT_EQ(job.host_memory, "4GiB");
}

TEST(JobFileTest, AGraphOfItsOwn) {
  const std::string text =
      R"({"hpvm_job": 1, "graph": {"hpvm": 1, "z": 1, "a": 0.5}, "deadline": 30, "after": "job-1"})";
  const StatusOr<JobFile> file = ParseJobFile("a.json", text);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(SchemaTakes(text));
  EXPECT_EQ(file->job.graph.arguments.place.text, R"({"hpvm":1,"z":1,"a":0.5})");  // Keeps the order of members.
  EXPECT_EQ(file->job.graph.deadline, "30");
  EXPECT_THAT(file->job.after, ElementsAre("job-1"));
}

// Every error is reported, each with its place.
TEST(JobFileTest, AllFaultsAtOnce) {
  const std::string text = R"({"hpvm_job": 2, "grahp": "x", "inputs": {"a/b": []}, "repeat": 0, "after": ["", 3]})";
  const std::string refusal = Refusal(text);
  EXPECT_FALSE(SchemaTakes(text));
  EXPECT_THAT(refusal, HasSubstr("The job file \"a.json\" is not valid"));
  EXPECT_THAT(refusal, HasSubstr("/hpvm_job: It has to be an integer from 1 to 1."));
  EXPECT_THAT(refusal, HasSubstr("/grahp: There is no such member of a job; did you mean \"graph\"?"));
  EXPECT_THAT(refusal, HasSubstr("/inputs/a~1b: It has to be a string or a number."));
  EXPECT_THAT(refusal, HasSubstr("/repeat: It has to be an integer from 1 to 1000000."));
  EXPECT_THAT(refusal, HasSubstr("/after/0: It has to be a string"));
  EXPECT_THAT(refusal, HasSubstr("/after/1: It has to be a string"));
  EXPECT_THAT(refusal, HasSubstr("\"graph\" is missing"));
}

TEST(JobFileTest, AgreesWithTheSchema) {
  for (const char* member : {R"("graph": 3)",
                             R"("graph": "")",
                             R"("modules": {"k": 1})",
                             R"("modules": "k")",
                             R"("inputs": {"a": null})",
                             R"("inputs": 1)",
                             R"("outputs": [])",
                             R"("devices": [1])",
                             R"("repeat": 1.5)",
                             R"("repeat": 1000001)",
                             R"("repeat": -1)",
                             R"("repeat": 18446744073709551615)",
                             R"("priority": 101)",
                             R"("attempts": 11)",
                             R"("attempts": "2")",
                             R"("name": "")",
                             R"("deadline": [])",
                             R"("after": {})",
                             R"("array": 3)",
                             R"("key": 3)",
                             R"("needs": [""])",
                             R"("on_host": "")",
                             R"("host_memory": [])",
                             R"("until": "")"}) {
    const std::string graph = std::string(member).starts_with("\"graph\"") ? "" : R"("graph": "g.json", )";
    const std::string text = "{\"hpvm_job\": 1, " + graph + member + "}";
    EXPECT_FALSE(ParseJobFile("a.json", text).ok()) << text;
    EXPECT_FALSE(SchemaTakes(text)) << text;
  }
}

TEST(JobFileTest, NoJson) {
  EXPECT_THAT(Refusal(""), HasSubstr("is not valid"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("A job file is a JSON object"));
  EXPECT_THAT(Refusal(R"({"hpvm_job": 1, "graph": "a", "graph": "b"})"), HasSubstr("occurs twice"));
  EXPECT_THAT(Refusal("{\"hpvm_job\": 1,\n \"graph\": }"), HasSubstr("byte"));
  EXPECT_FALSE(ParseJobFile("a", std::string(100'000, '[')).ok());
}

}  // namespace
}  // namespace hpvm::ctl
