// SPDX-License-Identifier: Apache-2.0
#include "graph/json_tree.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace hpvm::graph {

using Kind = JsonValue::Kind;

// JsonSink receives nlohmann's SAX events and fills a JsonTree. An event handler that returns false ends the reading.
class JsonSink {
 public:
  JsonSink(JsonTree& tree, const Limits& limits, DiagnosticSink& faults)
      : tree_(tree),
        writer_(tree),
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
    return HasRoom() && (writer_.AddNumber(value), true);
  }
  bool binary(std::vector<uint8_t>&) { return false; }  // Does not occur in JSON texts.

  bool string(std::string& text) {
    const bool source = writer_.depth() > 0 && writer_.member() == static_cast<uint32_t>(Key::kInline);
    if (!source && text.size() > limits_.string_bytes_max) {
      return Add(Kind::kRefused) &&
             Fault(false, "The string has ", text.size(), " bytes; the limit is ", limits_.string_bytes_max, ".");
    }
    return HasRoom() && (writer_.AddString(text), true);
  }

  bool start_object(size_t) { return Open(Kind::kObject); }
  bool start_array(size_t) { return Open(Kind::kArray); }
  bool end_array() {
    writer_.Close();
    return true;
  }
  bool end_object() {
    CheckDuplicates(writer_.Close());
    return true;
  }

  bool key(std::string& text) {
    if (text.size() > limits_.string_bytes_max) {
      faults_.AdmitError();
      faults_.Add({Severity::kError, tree_.PointerTo(writer_.innermost()), std::nullopt,
                   Cat("A member's name has ", text.size(), " bytes; the limit is ", limits_.string_bytes_max, ".")});
      return false;
    }
    writer_.Member(text);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // Keeps the text after the bracket of "[json.exception.parse_error.101] parse error at line 1, column 5: syntax
    // error while ...".
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
  bool HasRoom() {
    if (writer_.values() < values_max_) {
      return true;
    }
    faults_.AdmitError();
    faults_.Add({Severity::kError, "", std::nullopt,
                 Cat("The document has more than ", values_max_,
                     " JSON values, the most that its limits on nodes and edges allow.")});
    return false;
  }

  bool Add(Kind kind, int64_t integer = 0) { return HasRoom() && (writer_.Add(kind, integer), true); }

  bool Open(Kind kind) {
    if (!HasRoom()) {
      return false;
    }
    writer_.Open(kind);
    if (writer_.depth() > depth_max_) {
      Fault(true, "The document is nested deeper than ", depth_max_, " levels; the limit on nested nodes is ",
            limits_.depth_max, ".");
      return false;
    }
    return true;
  }

  // Reports member names that stand twice in `object`: `seen_in_[name]` is the last object with that member. The time
  // for all objects is linear in the document.
  void CheckDuplicates(JsonId object) {
    if (seen_in_.size() < tree_.names_.size()) {
      seen_in_.resize(std::max<size_t>(tree_.names_.size(), 2 * seen_in_.size()), kNoJson);
    }
    for (JsonId child = tree_.FirstChild(object); child != kNoJson; child = tree_.Next(child)) {
      uint32_t& seen = seen_in_[tree_.values_[child].name];
      if (seen == object && faults_.AdmitError()) {
        faults_.Add({Severity::kError, tree_.PointerTo(object), std::nullopt,
                     Cat("Name ", Quoted(tree_.NameOf(child)), " occurs twice in this object; once is allowed.")});
      }
      seen = object;
    }
  }

  // Reports a fault of the value added last. Returns false when the fault `ends` the reading.
  template <typename... Parts>
  bool Fault(bool ends, const Parts&... parts) {
    if (faults_.AdmitError()) {
      std::string place = tree_.PointerTo(static_cast<JsonId>(tree_.values_.size() - 1));
      // The pointer of a deeply nested value would be as long as the document.
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
  TreeWriter writer_;
  const Limits& limits_;
  DiagnosticSink& faults_;
  const uint64_t depth_max_;
  const uint64_t values_max_;
  std::vector<JsonId> seen_in_;
};

JsonId TreeWriter::Add(Kind kind, int64_t integer, JsonId origin) {
  const auto id = static_cast<JsonId>(tree_.values_.size());
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
  if (tree_.short_form_ != nullptr) {
    tree_.origins_.push_back(origin);
  }
  return id;
}

void TreeWriter::AddNumber(double number, JsonId origin) {
  Add(Kind::kFloat, 0, origin);
  tree_.values_.back().number = number;
}

void TreeWriter::AddString(std::string_view text, JsonId origin) {
  Add(Kind::kString, 0, origin);
  tree_.values_.back().size = static_cast<uint32_t>(text.size());
  tree_.values_.back().offset = tree_.pool_.size();
  tree_.pool_ += text;
}

void TreeWriter::Open(Kind kind, JsonId origin) { open_.push_back({Add(kind, 0, origin), kNoJson}); }

JsonId TreeWriter::Close() {
  const JsonId id = open_.back().id;
  open_.pop_back();
  return id;
}

void TreeWriter::Copy(const JsonTree& from, JsonId id, JsonId origin) {
  // Values stand in document order, so the descendants of `id` follow it. Each value first closes the containers to
  // which it does not belong.
  std::vector<JsonId> copied;
  for (JsonId at = id; at < from.values_.size() && (at == id || from.values_[at].parent >= id); ++at) {
    const JsonValue& value = from.values_[at];
    while (!copied.empty() && copied.back() != value.parent) {
      copied.pop_back();
      Close();
    }
    if (!copied.empty() && from.values_[copied.back()].kind() == Kind::kObject) {
      Member(from.NameOf(at));
    }
    const JsonId place = origin == kNoJson ? at : origin;
    switch (value.kind()) {
      case Kind::kArray:
      case Kind::kObject:
        Open(value.kind(), place);
        copied.push_back(at);
        break;
      case Kind::kString:
        AddString(from.String(at), place);
        break;
      case Kind::kFloat:
        AddNumber(value.number, place);
        break;
      default:
        Add(value.kind(), value.integer, place);
    }
  }
  for (; !copied.empty(); copied.pop_back()) {
    Close();
  }
}

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

bool JsonTree::Read(std::string_view document, const Limits& limits, DiagnosticSink& faults) {
  if (document.size() > limits.document_bytes_max) {
    faults.AdmitError();
    faults.Add({Severity::kError, "", std::nullopt,
                Cat("The document has ", document.size(), " bytes; the limit is ", limits.document_bytes_max, ".")});
    return false;
  }
  // The reader would take a zero byte for the end of the text, and ignore the bytes after it.
  if (const size_t zero = document.find('\0'); zero != std::string_view::npos) {
    faults.AdmitError();
    faults.Add({Severity::kError, "", zero, "The document is not JSON: it holds a zero byte."});
    return false;
  }
  values_.reserve(document.size() / 12);  // Enough for our own documents; the array grows for denser ones.
  JsonSink sink(*this, limits, faults);
  return nlohmann::json::sax_parse(document.data(), document.data() + document.size(), &sink) && !values_.empty();
}

std::string JsonTree::PointerTo(JsonId id) const {
  if (short_form_ != nullptr) {
    return short_form_->PointerTo(origins_[id]);
  }
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

std::string JsonTree::PlaceOf(std::string_view pointer) const {
  JsonId at = root();
  while (!pointer.empty() && values_[at].size > 0 &&
         (values_[at].kind() == Kind::kObject || values_[at].kind() == Kind::kArray)) {
    const size_t end = pointer.find('/', 1);
    const std::string_view token = pointer.substr(0, end);
    JsonId child = FirstChild(at);
    for (; child != kNoJson; child = Next(child)) {
      std::string name = "/";
      if (values_[at].kind() == Kind::kArray) {
        name += std::to_string(values_[child].name);
      } else {
        AppendPointerToken(name, NameOf(child));
      }
      if (name == token) {
        break;
      }
    }
    if (child == kNoJson) {
      break;
    }
    at = child;
    pointer = end == std::string_view::npos ? "" : pointer.substr(end);
  }
  return PointerTo(at);
}

}  // namespace hpvm::graph
