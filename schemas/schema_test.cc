// SPDX-License-Identifier: Apache-2.0
// Compares graph/'s reader with the schema, which valijson evaluates.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "base/clock.h"
#include "graph/parse.h"
#include "schemas/testing/documents.h"

namespace hpvm::graph {
namespace {

using testing::Document;
using testing::ReadDocuments;
using Json = nlohmann::json;

class SchemaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    schema_ = ReadSchema("graph.schema.json");
    short_schema_ = ReadSchema("short.schema.json");
  }
  static void TearDownTestSuite() {
    delete schema_;
    delete short_schema_;
  }
  static valijson::Schema* ReadSchema(const std::string& name) {
    const Json text = Json::parse(testing::ReadText(HPVMD_SOURCE_DIR "/schemas/" + name));
    auto* const schema = new valijson::Schema();
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(text), *schema);
    return schema;
  }

  // Returns the schema's reasons to reject the document; empty when it accepts.
  static std::string Refusal(const Json& document) {
    valijson::Validator validator;
    valijson::ValidationResults results;
    const bool is_short = document.is_object() && document.value("hpvm", Json()) == 2;
    if (validator.validate(is_short ? *short_schema_ : *schema_, valijson::adapters::NlohmannJsonAdapter(document),
                           &results)) {
      return "";
    }
    std::string text = "refused";
    valijson::ValidationResults::Error error;
    while (results.popError(error)) {
      text += "\n";
      for (const std::string& part : error.context) {
        text += part;
      }
      text += ": " + error.description;
    }
    return text;
  }

  static valijson::Schema* schema_;
  static valijson::Schema* short_schema_;
};

valijson::Schema* SchemaTest::schema_ = nullptr;
valijson::Schema* SchemaTest::short_schema_ = nullptr;

// The schema accepts every document that the reader accepts.
TEST_F(SchemaTest, AcceptsValidExamples) {
  for (const Document& document : ReadDocuments("valid")) {
    EXPECT_EQ(Refusal(Json::parse(document.text)), "") << document.name;
    const ParseOutcome outcome = Parse(document.text);
    ASSERT_TRUE(outcome.graph.has_value()) << document.name;
    EXPECT_EQ(Refusal(Json::parse(Print(*outcome.graph))), "") << document.name << ", printed";
  }
}

// The first word of an invalid example's name says which side must reject it: "json" only the reader, because the text
// is not JSON, or because a parser that keeps the last of two equal members cannot judge it; "schema" both; "graph"
// only the reader, because no schema can express the rule.
TEST_F(SchemaTest, AgreesOnInvalidExamples) {
  for (const Document& document : ReadDocuments("invalid")) {
    SCOPED_TRACE(document.name);
    if (document.name.starts_with("json-")) {
      continue;
    }
    const Json json = Json::parse(document.text, nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    if (document.name.starts_with("schema-")) {
      EXPECT_NE(Refusal(json), "");
    } else {
      EXPECT_TRUE(document.name.starts_with("graph-")) << "The name does not say who refuses it.";
      EXPECT_EQ(Refusal(json), "");
    }
  }
}

// Collects every value inside a document, as places for mutations.
void CollectPlaces(Json& value, std::vector<Json*>& places) {
  places.push_back(&value);
  if (value.is_structured()) {
    for (Json& child : value) {
      CollectPlaces(child, places);
    }
  }
}

// Makes one random change: a value from elsewhere, an odd value, or a removed, renamed or added member.
void Mutate(Json& document, const std::vector<Json>& odd, Rng& rng) {
  std::vector<Json*> places;
  CollectPlaces(document, places);
  Json& at = *places[rng.Below(places.size())];
  switch (rng.Below(6)) {
    case 0:
      at = odd[rng.Below(odd.size())];
      return;
    case 1:
      at = Json(*places[rng.Below(places.size())]);
      return;
    case 2:
      if (at.is_structured() && !at.empty()) {
        auto victim = at.begin();
        std::advance(victim, rng.Below(at.size()));
        at.erase(victim);
      }
      return;
    case 3:
      if (at.is_object() && !at.empty()) {
        auto source = at.begin();
        std::advance(source, rng.Below(at.size()));
        const Json copy = *source;
        at[rng.Below(2) == 0 ? source.key() + "x" : "hints"] = copy;
      }
      return;
    case 4:
      if (at.is_array()) {
        at.push_back(at.empty() ? odd[rng.Below(odd.size())] : Json(at[rng.Below(at.size())]));
      }
      return;
    default:
      if (at.is_string() && !at.get_ref<std::string&>().empty()) {
        std::string& text = at.get_ref<std::string&>();
        text[rng.Below(text.size())] = "anmwx019_-.+*/%(), AZ"[rng.Below(21)];
      } else if (at.is_number_integer()) {
        at = at.get<int64_t>() + static_cast<int64_t>(rng.Below(5)) - 2;
      }
      return;
  }
}

// The schema accepts every mutated document that the reader accepts, and such a document is the same after it has been
// printed and read back.
TEST_F(SchemaTest, AcceptsWhateverTheReaderAccepts) {
  constexpr uint64_t kSeed = 20240607;
  constexpr int kRounds = 6000;
  const std::vector<Json> odd = {
      nullptr,        true,        0,       1,           -1,   7,     1.5,  1e300,   "",  "n",
      "n+1",          "min(n, 3)", "a.b",   "gpu",       "i8", "f32", "in", "inout", "é", Json::array(),
      Json::object(), UINT64_MAX,  "exact", "one_to_one"};
  std::vector<Json> documents;
  for (const Document& document : ReadDocuments("valid")) {
    documents.push_back(Json::parse(document.text));
  }
  SeededRng rng(kSeed);
  int accepted = 0;
  int refused_by_both = 0;
  for (int round = 0; round < kRounds; ++round) {
    Json document = documents[rng.Below(documents.size())];
    for (uint64_t changes = 1 + rng.Below(2); changes > 0; --changes) {
      Mutate(document, odd, rng);
    }
    const std::string text = document.dump();
    const ParseOutcome outcome = Parse(text);
    const std::string refusal = Refusal(document);
    ASSERT_EQ(outcome.graph.has_value(), !HasErrors(outcome.diagnostics));
    if (!outcome.graph.has_value()) {
      refused_by_both += refusal.empty() ? 0 : 1;
      continue;
    }
    ++accepted;
    ASSERT_EQ(refusal, "") << "round " << round << " of seed " << kSeed << ": " << text;
    const ParseOutcome again = Parse(Print(*outcome.graph));
    ASSERT_TRUE(again.graph.has_value()) << ToString(again.diagnostics) << text;
    ASSERT_TRUE(*again.graph == *outcome.graph) << text;
  }
  // With fewer accepted or rejected documents the test would prove little.
  EXPECT_GT(accepted, kRounds / 20);
  EXPECT_GT(refused_by_both, kRounds / 20);
}

}  // namespace
}  // namespace hpvm::graph
