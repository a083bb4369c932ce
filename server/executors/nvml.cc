// SPDX-License-Identifier: Apache-2.0
#include "server/executors/nvml.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/executors/health_reading.h"

namespace hpvm::server {
namespace {

using Json = nlohmann::json;

// As documented in NVIDIA's "NVML API Reference Guide" (docs.nvidia.com/deploy/nvml-api); the layouts are part of the
// library's binary interface, which is stable across releases.
using Return = int;
using Handle = void*;
constexpr Return kSuccess = 0, kNotSupported = 3, kGpuIsLost = 15;
constexpr unsigned kTemperatureOfGpu = 0;
constexpr unsigned kCorrected = 0, kUncorrected = 1, kVolatile = 0;
constexpr unsigned long long kXidEvent = 8;
// Clocks held down by power (4, 0x80) or heat (8, 0x20, 0x40).
constexpr unsigned long long kThrottled = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Event {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

// A function that the library may lack, which then counts as not supported.
template <typename... Arguments>
class Function {
 public:
  void Load(void* library, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      call_ = call_ != nullptr ? call_ : reinterpret_cast<Return (*)(Arguments...)>(dlsym(library, name));
    }
  }
  explicit operator bool() const { return call_ != nullptr; }
  Return operator()(Arguments... arguments) const { return call_ == nullptr ? kNotSupported : call_(arguments...); }

 private:
  Return (*call_)(Arguments...) = nullptr;
};

// Text is a buffer for the library to write into, with space beyond the size that it is told, and always terminated.
class Text {
 public:
  char* data() { return bytes_.data(); }
  static constexpr unsigned kBytes = 96;
  std::string_view view() {
    bytes_.back() = 0;
    return bytes_.data();
  }

 private:
  std::array<char, 1024> bytes_{};
};

struct Library {
  Function<> init;
  Function<char*, unsigned> driver_version;
  Function<unsigned*> count;
  Function<unsigned, Handle*> handle;
  Function<Handle, char*, unsigned> uuid;
  Function<Handle, PciInfo*> pci;
  Function<Handle, unsigned, unsigned*> temperature;
  Function<Handle, unsigned*> power, power_limit;
  Function<Handle, Memory*> memory;
  Function<Handle, Utilization*> utilization;
  Function<Handle, unsigned, unsigned, unsigned long long*> ecc_errors;
  Function<Handle, unsigned*, unsigned*, unsigned*, unsigned*> remapped_rows;
  Function<Handle, unsigned long long*> clock_reasons;
  Function<Handle*> event_set;
  Function<Handle, unsigned long long, Handle> register_events;
  Function<Handle, Event*, unsigned> wait_event;

  explicit Library(void* library) {
    init.Load(library, {"nvmlInit_v2", "nvmlInit"});
    driver_version.Load(library, {"nvmlSystemGetDriverVersion"});
    count.Load(library, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    handle.Load(library, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    uuid.Load(library, {"nvmlDeviceGetUUID"});
    pci.Load(library, {"nvmlDeviceGetPciInfo_v3"});
    temperature.Load(library, {"nvmlDeviceGetTemperature"});
    power.Load(library, {"nvmlDeviceGetPowerUsage"});
    power_limit.Load(library, {"nvmlDeviceGetEnforcedPowerLimit"});
    memory.Load(library, {"nvmlDeviceGetMemoryInfo"});
    utilization.Load(library, {"nvmlDeviceGetUtilizationRates"});
    ecc_errors.Load(library, {"nvmlDeviceGetTotalEccErrors"});
    remapped_rows.Load(library, {"nvmlDeviceGetRemappedRows"});
    clock_reasons.Load(library,
                       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    event_set.Load(library, {"nvmlEventSetCreate"});
    register_events.Load(library, {"nvmlDeviceRegisterEvents"});
    wait_event.Load(library, {"nvmlEventSetWait_v2"});
  }
};

void Pause(uint64_t ms) {
  const timespec pause{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1'000'000)};
  nanosleep(&pause, nullptr);
}

uint64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

class Watcher {
 public:
  Watcher(const Library& library, uint64_t interval_ms) : library_(library), interval_ms_(interval_ms) {
    library_.event_set(&events_);
  }

  // Waits for events of the driver until the next reading is due, and reads.
  Json Read(bool at_once) {
    Enumerate();
    if (!at_once) {
      Await();
    }
    Text driver;
    driver_ = library_.driver_version(driver.data(), Text::kBytes) == kSuccess ? driver.view() : "";
    Json devices = Json::array();
    for (size_t i = 0; i < handles_.size(); ++i) {
      devices.push_back(ReadDevice(handles_[i], xids_[i]));
      xids_[i].clear();
    }
    return {{"devices", std::move(devices)}};
  }

 private:
  // Devices come and go; events are registered for new ones.
  void Enumerate() {
    unsigned count = 0;
    if (library_.count(&count) != kSuccess) {
      return;
    }
    std::vector<Handle> handles;
    for (unsigned i = 0; i < std::min<unsigned>(count, kHealthDevicesMax); ++i) {
      Handle handle = nullptr;
      if (library_.handle(i, &handle) == kSuccess && handle != nullptr) {
        handles.push_back(handle);
      }
    }
    std::vector<std::vector<uint64_t>> xids(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      const auto before = std::find(handles_.begin(), handles_.end(), handles[i]);
      if (before != handles_.end()) {
        xids[i] = std::move(xids_[static_cast<size_t>(before - handles_.begin())]);
      } else if (events_ != nullptr) {
        library_.register_events(handles[i], kXidEvent, events_);
      }
    }
    handles_ = std::move(handles);
    xids_ = std::move(xids);
  }

  void Await() {
    const uint64_t end = NowMs() + interval_ms_;
    for (uint64_t now = NowMs(); now < end; now = NowMs()) {
      Event event{};
      const bool has_events = events_ != nullptr && library_.wait_event;
      const uint64_t before = now;
      if (!has_events || library_.wait_event(events_, &event, static_cast<unsigned>(end - now)) != kSuccess) {
        if (!has_events || NowMs() - before < 5) {
          Pause(std::min<uint64_t>(end - now, has_events ? 50 : interval_ms_));  // It did not wait.
        }
        continue;
      }
      const auto found = std::find(handles_.begin(), handles_.end(), event.device);
      if (event.type == kXidEvent && found != handles_.end()) {
        std::vector<uint64_t>& xids = xids_[static_cast<size_t>(found - handles_.begin())];
        if (xids.size() < kXidsMax) {
          xids.push_back(event.data);
        } else {
          Pause(1);  // Too many events.
        }
      }
    }
  }

  Json ReadDevice(Handle device, const std::vector<uint64_t>& xids) const {
    Json json = {{"driver", driver_}, {"xids", xids}};
    Text uuid;
    bool is_lost = library_.uuid(device, uuid.data(), Text::kBytes) == kGpuIsLost;
    json["uuid"] = uuid.view();
    PciInfo pci{};
    if (library_.pci(device, &pci) == kSuccess) {
      pci.bus_id[sizeof(pci.bus_id) - 1] = 0;
      json["bus"] = std::string(pci.bus_id);
    }
    unsigned value = 0;
    const Return heat = library_.temperature(device, kTemperatureOfGpu, &value);
    is_lost |= heat == kGpuIsLost;
    if (heat == kSuccess) {
      json["temperature_c"] = static_cast<int>(value);
    }
    if (library_.power(device, &value) == kSuccess) {
      json["power_w"] = value / 1000.0;
    }
    if (library_.power_limit(device, &value) == kSuccess) {
      json["power_limit_w"] = value / 1000.0;
    }
    if (Memory memory{}; library_.memory(device, &memory) == kSuccess) {
      json["memory_used_bytes"] = memory.used;
    }
    if (Utilization use{}; library_.utilization(device, &use) == kSuccess) {
      json["busy"] = use.gpu / 100.0;
    }
    unsigned long long errors = 0;
    if (library_.ecc_errors(device, kCorrected, kVolatile, &errors) == kSuccess) {
      json["ecc_corrected"] = errors;
    }
    if (library_.ecc_errors(device, kUncorrected, kVolatile, &errors) == kSuccess) {
      json["ecc_uncorrected"] = errors;
    }
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (library_.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) == kSuccess) {
      json["awaits_reset"] = pending == 1 || failed == 1;
    }
    if (library_.clock_reasons(device, &errors) == kSuccess) {
      json["throttled"] = (errors & kThrottled) != 0;
    }
    json["lost"] = is_lost;
    return json;
  }

  const Library& library_;
  const uint64_t interval_ms_;
  std::string driver_;
  Handle events_ = nullptr;
  std::vector<Handle> handles_;
  std::vector<std::vector<uint64_t>> xids_;  // Parallel to handles_: faults since the last reading.
};

bool WriteLine(const Json& json) {
  std::string line = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
  for (std::string_view left = line; !left.empty();) {
    const ssize_t written = write(STDOUT_FILENO, left.data(), left.size());
    if (written <= 0) {
      return false;
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// The process needs nothing but its devices and a pipe.
void LockDown() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // Ends with its parent even while the library hangs.
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_FSIZE, &none);
  const rlimit few{256, 256};
  setrlimit(RLIMIT_NOFILE, &few);
}

}  // namespace

int WatchNvml(const std::string& library, uint64_t interval_ms, uint64_t count) {
  LockDown();
  const auto fail = [&](const std::string& why) {
    WriteLine({{"error", why}});
    return 1;
  };
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    return fail("The library " + library + " could not be loaded.");
  }
  const Library functions(loaded);
  if (const Return code = functions.init(); code != kSuccess) {
    return fail(library + " does not start (NVML error " + std::to_string(code) + ").");
  }
  Watcher watcher(functions, interval_ms);
  for (uint64_t i = 0; count == 0 || i < count; ++i) {
    if (!WriteLine(watcher.Read(/*at_once=*/i == 0))) {
      return 0;
    }
  }
  return 0;
}

}  // namespace hpvm::server
