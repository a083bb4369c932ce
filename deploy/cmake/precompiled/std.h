// SPDX-License-Identifier: Apache-2.0
// Read by nearly every source: compiled once (deploy/cmake/Precompiled.cmake). Sources include what they use all
// the same.
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
