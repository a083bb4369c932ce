// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/sql/sql_session.h"

#include <algorithm>

namespace hpvm::server::cluster {
namespace {

// A column that a statement does not select, or of another type, reads as the type's zero: a damaged row must not end
// the daemon.
template <typename T>
const T& Get(const std::vector<SqlValue>& columns, size_t column, const T& otherwise) {
  const T* value = column < columns.size() ? std::get_if<T>(&columns[column].value()) : nullptr;
  return value == nullptr ? otherwise : *value;
}

const std::string kNoBytes;
const SqlBlob kNoBlob;

}  // namespace

SqlValue::SqlValue(uint64_t number)
    : value_(static_cast<int64_t>(std::min(number, static_cast<uint64_t>(INT64_MAX)))) {}

bool SqlRow::IsNull(size_t column) const {
  return column >= columns_.size() || std::holds_alternative<std::monostate>(columns_[column].value());
}

int64_t SqlRow::Int(size_t column) const { return Get<int64_t>(columns_, column, 0); }

double SqlRow::Real(size_t column) const {
  return Get<double>(columns_, column, static_cast<double>(Get<int64_t>(columns_, column, 0)));
}

const std::string& SqlRow::Text(size_t column) const { return Get(columns_, column, kNoBytes); }

const std::string& SqlRow::Blob(size_t column) const { return Get(columns_, column, kNoBlob).bytes; }

}  // namespace hpvm::server::cluster
