// SPDX-License-Identifier: Apache-2.0
#include "graph/json_tree.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace hpvm::graph {

using Kind = JsonValue::Kind;

// nlohmann's SAX events into a JsonTree. Returning false ends the reading.
class JsonSink {
 public:
  JsonSink(JsonTree& tree, const Limits& limits, Faults& faults)
      : tree_(tree),
        limits_(limits),
        faults_(faults),
        depth_max_(2 * (uint64_t{limits.depth_max} + 1) + 8),
        values_max_(uint64_t{64} * limits.nodes_max + uint64_t{8} * limits.edges_max + 1'000'000) {}

  bool null() { return Add(Kind::kNull); }
  bool boolean(bool value) { return Add(Kind::kBool, value); }
  bool number_integer(int64_t value) { return Add(Kind::kInteger, value); }
  bool number_unsigned(uint64_t value) {
    return value <= INT64_MAX ? Add(Kind::kInteger, static_cast<int64_t>(value)) : Add(Kind::kBigInteger);
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) {
      return Add(Kind::kBigInteger);
    }
    return Add(Kind::kFloat) && (last().number = value, true);
  }
  bool binary(std::vector<uint8_t>&) { return false; }  // Not in JSON texts.

  bool string(std::string& text) {
    const bool source = !open_.empty() && member_ == static_cast<uint32_t>(Key::kInline);
    if (!source && text.size() > limits_.string_bytes_max) {
      return Add(Kind::kRefused) &&
             Fault(false, "The string has ", text.size(), " bytes; the limit is ", limits_.string_bytes_max, ".");
    }
    if (!Add(Kind::kString)) {
      return false;
    }
    last().size = static_cast<uint32_t>(text.size());
    last().offset = tree_.pool_.size();
    tree_.pool_ += text;
    return true;
  }

  bool start_object(size_t) { return Open(Kind::kObject); }
  bool start_array(size_t) { return Open(Kind::kArray); }
  bool end_array() { return Close(); }
  bool end_object() {
    CheckDuplicates(open_.back().id);
    return Close();
  }

  bool key(std::string& text) {
    if (text.size() > limits_.string_bytes_max) {
      faults_.AdmitError();
      faults_.Add({Severity::kError, tree_.PointerTo(open_.back().id), std::nullopt,
                   Cat("A member's name has ", text.size(), " bytes; the limit is ", limits_.string_bytes_max, ".")});
      return false;
    }
    member_ = tree_.names_.Intern(text);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ...": keep what follows
    // the bracket.
    std::string_view text = error.what();
    if (const size_t end = text.find("] "); end != std::string_view::npos) {
      text.remove_prefix(end + 2);
    }
    const std::string shown = Readable(text);
    if (faults_.AdmitError()) {
      faults_.Add({Severity::kError, "", position, Cat("The document is not JSON: ", shown, ".")});
    }
    return false;
  }

 private:
  struct Container {
    JsonId id;
    JsonId last_child;
  };

  JsonValue& last() { return tree_.values_.back(); }

  bool Add(Kind kind, int64_t integer = 0) {
    const auto id = static_cast<JsonId>(tree_.values_.size());
    if (id >= values_max_) {
      faults_.AdmitError();
      faults_.Add({Severity::kError, "", std::nullopt,
                   Cat("The document has more than ", values_max_,
                       " JSON values, the most that its limits on nodes and edges allow.")});
      return false;
    }
    JsonValue value;
    value.kind_bits = static_cast<uint32_t>(kind);
    value.integer = integer;
    if (!open_.empty()) {
      Container& parent = open_.back();
      JsonValue& holder = tree_.values_[parent.id];
      value.parent = parent.id;
      value.name = holder.kind() == Kind::kObject ? member_ : holder.size;
      holder.size = holder.size + 1;
      if (parent.last_child != kNoJson) {
        tree_.values_[parent.last_child].next = id;
      }
      parent.last_child = id;
    }
    tree_.values_.push_back(value);
    return true;
  }

  bool Open(Kind kind) {
    if (!Add(kind)) {
      return false;
    }
    open_.push_back({static_cast<JsonId>(tree_.values_.size() - 1), kNoJson});
    if (open_.size() > depth_max_) {
      Fault(true, "The document is nested deeper than ", depth_max_, " levels; the limit on nested nodes is ",
            limits_.depth_max, ".");
      return false;
    }
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // All members of one object together: `seen_in_[name]` is the object that last had it. Linear in the document.
  void CheckDuplicates(JsonId object) {
    if (seen_in_.size() < tree_.names_.size()) {
      seen_in_.resize(std::max<size_t>(tree_.names_.size(), 2 * seen_in_.size()), kNoJson);
    }
    for (JsonId child = tree_.FirstChild(object); child != kNoJson; child = tree_.Next(child)) {
      uint32_t& seen = seen_in_[tree_.values_[child].name];
      if (seen == object && faults_.AdmitError()) {
        faults_.Add({Severity::kError, tree_.PointerTo(object), std::nullopt,
                     Cat("Name ", Quoted(tree_.NameOf(child)), " stands twice in this object; once is allowed.")});
      }
      seen = object;
    }
  }

  // Reports about the value added last.
  template <typename... Parts>
  bool Fault(bool ends, const Parts&... parts) {
    if (faults_.AdmitError()) {
      std::string place = tree_.PointerTo(static_cast<JsonId>(tree_.values_.size() - 1));
      // A bomb's pointer would be as long as the bomb.
      place = place.size() > 300 ? place.substr(0, 300) + "..." : place;
      faults_.Add({Severity::kError, std::move(place), std::nullopt, Cat(parts...)});
    }
    return !ends;
  }

  static std::string Readable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 240)) {
      const auto byte = static_cast<uint8_t>(c);
      out += byte >= 0x20 && byte < 0x7f ? c : '?';
    }
    return text.size() > 240 ? out + "..." : out;
  }

  JsonTree& tree_;
  const Limits& limits_;
  Faults& faults_;
  const uint64_t depth_max_;
  const uint64_t values_max_;
  std::vector<Container> open_;
  std::vector<JsonId> seen_in_;
  uint32_t member_ = 0;
};

std::string_view KindName(Kind kind) {
  constexpr std::string_view kNames[] = {"null",     "a boolean", "an integer", "an integer", "a number",
                                         "a string", "an array",  "an object",  "refused"};
  return kNames[static_cast<size_t>(kind)];
}

JsonTree::JsonTree() {
  for (const std::string_view name : kKeyNames) {
    names_.Intern(name);
  }
}

bool JsonTree::Read(std::string_view document, const Limits& limits, Faults& faults) {
  if (document.size() > limits.document_bytes_max) {
    faults.AdmitError();
    faults.Add({Severity::kError, "", std::nullopt,
                Cat("The document has ", document.size(), " bytes; the limit is ", limits.document_bytes_max, ".")});
    return false;
  }
  // The reader would take it for the end, and what follows would never be looked at.
  if (const size_t zero = document.find('\0'); zero != std::string_view::npos) {
    faults.AdmitError();
    faults.Add({Severity::kError, "", zero, "The document is not JSON: it holds a zero byte."});
    return false;
  }
  values_.reserve(document.size() / 12);  // What our own documents need; more grows.
  JsonSink sink(*this, limits, faults);
  return nlohmann::json::sax_parse(document.data(), document.data() + document.size(), &sink) && !values_.empty();
}

std::string JsonTree::PointerTo(JsonId id) const {
  std::vector<JsonId> path;
  for (JsonId at = id; at != kNoJson && values_[at].parent != kNoJson; at = values_[at].parent) {
    path.push_back(at);
  }
  std::string pointer;
  for (auto at = path.rbegin(); at != path.rend(); ++at) {
    pointer += '/';
    if (values_[values_[*at].parent].kind() == Kind::kArray) {
      pointer += std::to_string(values_[*at].name);
    } else {
      AppendPointerToken(pointer, NameOf(*at));
    }
  }
  return pointer;
}

}  // namespace hpvm::graph
