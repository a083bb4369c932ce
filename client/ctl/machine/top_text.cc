// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/machine/top_text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "client/ctl/text/device_text.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

struct Column {
  std::string heading;
  int rank = 0;  // Columns with the highest rank are dropped first when there is no room.
  bool is_number = false;
};

// Returns the number of columns of UTF-8 text: continuation bytes take none.
size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Returns the first `width` columns; the last of them marks that text is missing.
std::string Fitted(const std::string& text, size_t width) {
  if (WidthOf(text) <= width) {
    return text;
  }
  std::string kept;
  size_t columns = 0;
  for (size_t i = 0; i < text.size() && width > 0; ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && ++columns == width) {
      break;
    }
    kept += text[i];
  }
  return kept + (width > 0 ? "~" : "");
}

class Grid {
 public:
  explicit Grid(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Names come from other users: they must not control the terminal or start a line.
  void Add(std::vector<std::string> cells) {
    for (std::string& cell : cells) {
      std::replace(cell.begin(), cell.end(), '\n', ' ');
      cell = Printable(cell);
    }
    rows_.push_back(std::move(cells));
  }
  size_t size() const { return rows_.size(); }

  // Returns the heading and at most `rows_max` rows.
  std::vector<std::string> Lines(size_t width, size_t rows_max) const {
    std::vector<size_t> widths(columns_.size());
    for (size_t c = 0; c < columns_.size(); ++c) {
      widths[c] = columns_[c].heading.size();
      for (const auto& row : rows_) {
        widths[c] = std::max(widths[c], WidthOf(row[c]));
      }
    }
    const std::vector<size_t> shown = Chosen(width, widths);
    std::vector<std::string> lines = {Line(shown, widths, width, nullptr)};
    for (size_t r = 0; r < std::min(rows_max, rows_.size()); ++r) {
      lines.push_back(Line(shown, widths, width, &rows_[r]));
    }
    return lines;
  }

 private:
  std::vector<size_t> Chosen(size_t width, const std::vector<size_t>& widths) const {
    std::vector<size_t> shown;
    for (size_t c = 0; c < columns_.size(); ++c) {
      shown.push_back(c);
    }
    const auto needed = [&] {
      size_t sum = 0;
      for (const size_t c : shown) {
        sum += widths[c] + 2;
      }
      return sum - 2;
    };
    while (shown.size() > 1 && needed() > width) {
      shown.erase(std::max_element(shown.begin(), shown.end(),
                                   [&](size_t a, size_t b) { return columns_[a].rank < columns_[b].rank; }));
    }
    return shown;
  }

  std::string Line(const std::vector<size_t>& shown, const std::vector<size_t>& widths, size_t width,
                   const std::vector<std::string>* row) const {
    std::string line;
    for (const size_t c : shown) {
      const std::string& cell = row == nullptr ? columns_[c].heading : (*row)[c];
      const std::string space(widths[c] - std::min(widths[c], WidthOf(cell)), ' ');
      line += (line.empty() ? "" : "  ") + (columns_[c].is_number ? space + cell : cell + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return Fitted(line, width);
  }

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string Percent(double part) {
  char text[32];
  snprintf(text, sizeof text, "%.0f %%", std::clamp(part, 0.0, 1.0) * 100);
  return text;
}

std::string Or(std::string text, bool is_there) { return is_there ? std::move(text) : "-"; }

std::string Since(int64_t then_ns, int64_t now_ns) {
  return then_ns == 0 ? "-" : DurationText(static_cast<uint64_t>(std::max<int64_t>(now_ns - then_ns, 0)));
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ",") + word;
  }
  return text.empty() ? "-" : text;
}

// Rates computes the growth per second between two responses, or from nothing.
class Rates {
 public:
  Rates(const v1::GetOverviewResponse* before, const v1::GetOverviewResponse& now) : now_(now) {
    // The counters of a restarted server begin at zero.
    if (before != nullptr && before->started_unix_ns() == now.started_unix_ns()) {
      before_ = before;
    }
    const int64_t since = before_ != nullptr ? before_->time_unix_ns() : now.started_unix_ns();
    seconds_ = std::max(1e-3, static_cast<double>(now.time_unix_ns() - since) / 1e9);
  }
  double Processor() const {
    return static_cast<double>(now_.processor_ns() -
                               Earlier(before_ == nullptr ? 0 : before_->processor_ns(), now_.processor_ns())) /
           1e9 / seconds_;
  }
  double Busy(const v1::DeviceLoad& device) const {
    uint64_t earlier = 0;
    for (int i = 0; before_ != nullptr && i < before_->devices_size(); ++i) {
      earlier = before_->devices(i).device().id() == device.device().id() ? before_->devices(i).busy_ns() : earlier;
    }
    return static_cast<double>(device.busy_ns() - Earlier(earlier, device.busy_ns())) / 1e9 / seconds_;
  }
  // Returns the number of devices that a tenant kept busy; negative without an earlier response, because the tenant
  // may have used them before the server started.
  double DeviceTime(const v1::TenantLoad& tenant) const {
    for (int i = 0; before_ != nullptr && i < before_->tenants_size(); ++i) {
      const v1::TenantLoad& then = before_->tenants(i);
      if (then.name() == tenant.name()) {
        return static_cast<double>(tenant.device_ns() - Earlier(then.device_ns(), tenant.device_ns())) / 1e9 / seconds_;
      }
    }
    return -1;
  }

 private:
  // A count may shrink, for example when a tenant goes.
  static uint64_t Earlier(uint64_t earlier, uint64_t now) { return std::min(earlier, now); }

  const v1::GetOverviewResponse* before_ = nullptr;
  const v1::GetOverviewResponse& now_;
  double seconds_ = 1;
};

std::vector<std::string> Heading(const Rates& rates, const v1::GetOverviewResponse& now, size_t width) {
  uint64_t running = 0, queued = 0, waiting = 0, runs = 0;
  for (const v1::TenantLoad& tenant : now.tenants()) {
    running += tenant.jobs_running();
    queued += tenant.jobs_queued();
    waiting += tenant.jobs_waiting();
    runs += tenant.runs();
  }
  std::vector<std::string> parts = {"up " + Since(now.started_unix_ns(), now.time_unix_ns()),
                                    std::to_string(running) + " jobs run", std::to_string(queued) + " queued",
                                    std::to_string(waiting) + " wait", std::to_string(runs) + " runs"};
  if (now.host_processors() > 0) {
    parts.push_back("processor " + Percent(rates.Processor() / now.host_processors()) + " of " +
                    std::to_string(now.host_processors()));
    parts.push_back("memory " + BytesText(now.memory_bytes()) + " of " + BytesText(now.host_memory_bytes()));
  }
  // Puts as many on a line as fit.
  std::vector<std::string> lines;
  for (const std::string& part : parts) {
    if (!lines.empty() && WidthOf(lines.back()) + 3 + WidthOf(part) <= width) {
      lines.back() += " | " + part;
    } else {
      lines.push_back(Fitted(part, width));
    }
  }
  if (now.intake().closed()) {
    std::string why = now.intake().reason().empty() ? "" : ": " + now.intake().reason();
    std::replace(why.begin(), why.end(), '\n', ' ');
    const std::string by = now.intake().changed_by().empty() ? "" : " (" + now.intake().changed_by() + ")";
    lines.push_back(Fitted(Printable("CLOSED: nothing is started" + why + by), width));
  }
  return lines;
}

Grid DeviceGrid(const Rates& rates, const v1::GetOverviewResponse& now) {
  Grid grid({{"DEVICE", 0},
             {"STATE", 1},
             {"BUSY", 2, true},
             {"MEMORY", 5, true},
             {"WAITING", 4, true},
             {"HELD BY", 3},
             {"NAME", 6}});
  for (const v1::DeviceLoad& load : now.devices()) {
    const v1::Device& device = load.device();
    grid.Add({device.id(), DeviceStateText(device), Percent(rates.Busy(load)),
              Or(BytesText(load.memory_bytes()), load.memory_bytes() > 0), std::to_string(load.waiting()),
              Joined(load.holders()), device.name()});
  }
  return grid;
}

Grid TenantGrid(const Rates& rates, const v1::GetOverviewResponse& now) {
  Grid grid({{"TENANT", 0},
             {"RUN", 1, true},
             {"QUEUED", 2, true},
             {"WAIT", 6, true},
             {"RUNS", 3, true},
             {"SHARE", 4, true},
             {"DEVICES", 5, true},
             {"OLDEST", 7, true},
             {"DEVICE MEM", 8, true},
             {"HOST MEM", 9, true},
             {"DISK", 10, true},
             {"DEVICE TIME", 11, true},
             {"PID", 12, true}});
  std::vector<const v1::TenantLoad*> tenants;
  for (const v1::TenantLoad& tenant : now.tenants()) {
    tenants.push_back(&tenant);
  }
  // The busiest come first.
  std::stable_sort(tenants.begin(), tenants.end(), [](const v1::TenantLoad* a, const v1::TenantLoad* b) {
    const auto rank = [](const v1::TenantLoad& t) {
      return std::tuple(t.dominant_share(), t.jobs_running() + t.runs(), t.jobs_queued(), t.jobs_waiting());
    };
    return rank(*a) > rank(*b);
  });
  for (const v1::TenantLoad* tenant : tenants) {
    const double used = rates.DeviceTime(*tenant);
    char rate[32];
    snprintf(rate, sizeof rate, "%.2f", std::max(used, 0.0));
    grid.Add({tenant->name() + (tenant->disabled() ? " (disabled)" : ""), std::to_string(tenant->jobs_running()),
              std::to_string(tenant->jobs_queued()), std::to_string(tenant->jobs_waiting()),
              std::to_string(tenant->runs()), Percent(tenant->dominant_share()), Or(rate, used >= 0),
              Since(tenant->oldest_queued_unix_ns(), now.time_unix_ns()),
              Or(BytesText(tenant->device_bytes()), tenant->device_bytes() > 0),
              Or(BytesText(tenant->host_bytes()), tenant->host_bytes() > 0),
              Or(BytesText(tenant->disk_bytes()), tenant->disk_bytes() > 0), DurationText(tenant->device_ns()),
              Or(std::to_string(tenant->executor_pid()), tenant->executor_pid() != 0)});
  }
  return grid;
}

// On a narrow screen an id is cut, because it would leave room for nothing else.
std::string IdText(const std::string& id, size_t width) {
  constexpr size_t kNarrow = 72, kBeginning = 12;
  return id.empty() ? "-" : width < kNarrow ? Fitted(id, kBeginning) : id;
}

Grid WorkGrid(const v1::GetOverviewResponse& now, size_t width) {
  Grid grid({{"JOB", 1},
             {"TENANT", 0},
             {"GRAPH", 4},
             {"STATE", 3},
             {"FOR", 2, true},
             {"NODES", 5, true},
             {"DEVICES", 6},
             {"NAME", 8},
             {"NOW", 7}});
  for (const v1::RunningWork& work : now.running()) {
    grid.Add({IdText(work.job_id(), width), work.tenant(), Or(work.graph(), !work.graph().empty()),
              StateText(work.state()), Since(work.since_unix_ns(), now.time_unix_ns()),
              Or(std::to_string(work.nodes_run()) + "/" +
                     (work.nodes_total() > 0 ? std::to_string(work.nodes_total()) : "?"),
                 work.nodes_run() + work.nodes_total() > 0),
              Joined(work.devices()), Or(work.name(), !work.name().empty()),
              work.waits_for().empty() ? "computes" : work.waits_for()});
  }
  return grid;
}

}  // namespace

std::vector<std::string> TopLines(const v1::GetOverviewResponse* before, const v1::GetOverviewResponse& now,
                                  const ScreenSize& size) {
  const Rates rates(before, now);
  std::vector<std::string> lines = Heading(rates, now, size.width);
  const Grid grids[] = {DeviceGrid(rates, now), TenantGrid(rates, now), WorkGrid(now, size.width)};
  const uint64_t left_out[] = {0, 0, now.running_left_out()};
  // Each table has an empty line, a heading and a line that counts missing rows; the remaining lines are shared:
  // running work gets half, the other tables get what that leaves.
  const size_t frame = lines.size() + 9;
  const size_t room = size.height == 0 ? SIZE_MAX : size.height > frame ? size.height - frame : 0;
  size_t left = room;
  for (size_t g = 0; g < std::size(grids); ++g) {
    const size_t fair = g + 1 == std::size(grids) ? left : left / (std::size(grids) - g);
    const size_t rows = size.height == 0 ? SIZE_MAX : std::max<size_t>(fair, 1);
    lines.emplace_back();
    for (std::string& line : grids[g].Lines(size.width, rows)) {
      lines.push_back(std::move(line));
    }
    const size_t shown = std::min(rows, grids[g].size());
    left -= std::min(left, shown);
    if (const uint64_t more = grids[g].size() - shown + left_out[g]; more > 0) {
      lines.push_back(Fitted("... and " + std::to_string(more) + " more", size.width));
    }
  }
  if (size.height > 0 && lines.size() > size.height) {
    lines.resize(size.height);
  }
  return lines;
}

}  // namespace hpvm::ctl
