// SPDX-License-Identifier: Apache-2.0
// hpvmctl top: a continuously updated view of devices, tenants and running work.
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "client/ctl/machine/top_text.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"

#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  double interval = 2;
  uint64_t count = 0;
  bool once = false;
  uint64_t width = 0;
};

// Requests no more than a screen can show.
constexpr uint32_t kRunningShown = 200;

volatile sig_atomic_t ended = 0;

void OnEnd(int) { ended = 1; }
void OnResize(int) {}  // Interrupts the wait, so that the screen is redrawn.

ScreenSize SizeOf(const Options& options, bool is_terminal) {
  winsize window{};
  ScreenSize size;
  if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    size = {window.ws_col, window.ws_row};
  } else {
    size.width = 200;
  }
  size.width = options.width != 0 ? options.width : size.width;
  return size;
}

// Screen switches to the terminal's alternate screen during its lifetime; the previous contents come back afterwards.
class Screen {
 public:
  explicit Screen(bool is_wanted) : is_wanted_(is_wanted) {
    if (is_wanted_) {
      struct sigaction action {};
      action.sa_handler = OnEnd;
      sigaction(SIGINT, &action, nullptr);
      sigaction(SIGTERM, &action, nullptr);
      action.sa_handler = OnResize;
      sigaction(SIGWINCH, &action, nullptr);
      fputs("\x1b[?1049h\x1b[?25l", stdout);
    }
  }
  ~Screen() {
    if (is_wanted_) {
      fputs("\x1b[?25h\x1b[?1049l", stdout);
      fflush(stdout);
    }
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Show(const std::vector<std::string>& lines) const {
    std::string text = is_wanted_ ? "\x1b[H" : "";
    for (size_t i = 0; i < lines.size(); ++i) {
      // The last line has no newline, which would scroll the screen.
      text += lines[i] + (is_wanted_ ? "\x1b[K" : "") + (is_wanted_ && i + 1 == lines.size() ? "" : "\n");
    }
    fputs((text + (is_wanted_ ? "\x1b[J" : "")).c_str(), stdout);
    fflush(stdout);
  }

 private:
  const bool is_wanted_;
};

void Wait(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec pause{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  nanosleep(&pause, nullptr);
}

Status Top(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  Admin admin(*client);
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const bool is_picture = globals.format == Format::kTable || globals.format == Format::kWide;
  // A pipe gets one view and ends, unless options say otherwise.
  const uint64_t count = options.once ? 1 : options.count != 0 ? options.count : is_terminal ? UINT64_MAX : 1;
  const Screen screen(is_terminal && is_picture && count > 1);
  std::optional<v1::GetOverviewResponse> before;
  for (uint64_t n = 0; n < count && ended == 0; ++n) {
    if (n > 0) {
      Wait(options.interval);
      if (ended != 0) {
        break;
      }
    }
    HPVMD_ASSIGN_OR_RETURN(v1::GetOverviewResponse now, admin.GetOverview(kRunningShown));
    if (is_picture) {
      ScreenSize size = SizeOf(options, is_terminal);
      size.height = count > 1 ? size.height : 0;
      screen.Show(TopLines(before.has_value() ? &*before : nullptr, now, size));
    } else {
      PrintData(now, globals.format);
    }
    before = std::move(now);
  }
  return absl::OkStatus();
}

}  // namespace

void AddTop(Commands commands) {
  CLI::App& top = AddCommand(commands.app, "top", "Show who uses the machine: devices, tenants, and what runs",
                             "On a terminal the table is renewed until Ctrl-C; elsewhere it is printed once. "
                             "Administrators see every tenant,\n"
                             "others their own. DEVICES is how many devices a tenant keeps busy, BUSY how much of the "
                             "time a device was busy.\n"
                             "Examples:\n"
                             "  hpvmctl top --once\n"
                             "  hpvmctl top --interval 1 --count 3\n"
                             "  hpvmctl top --once -o json");
  Options& options = SetWork(commands, top, Top);
  top.add_option("--interval", options.interval, "Seconds between two tables")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  top.add_option("--count", options.count, "End after this many tables")->check(CLI::Range(1, 1'000'000'000));
  top.add_flag("--once", options.once, "Print one table, of the time since the server started");
  top.add_option("--width", options.width, "Width in characters; default: the terminal's")
      ->check(CLI::Range(20, 10'000));
}

}  // namespace hpvm::ctl
