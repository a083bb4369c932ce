// SPDX-License-Identifier: Apache-2.0
// A stand-in for NVIDIA's management library, which answers from the file beside it, with lines "NAME VALUE", read at
// each call. It lacks some functions, like older libraries.
//
//   uuid, bus, driver TEXT    the texts; "endless" fills the whole buffer, without a terminator
//   count N                   devices; 1 without it
//   temperature, power, ecc_corrected, ecc_uncorrected N
//   lost 1                    every query about the device reports that it is lost
//   xid N AT                  a fault that is reported once for each AT
//   hang 1, crash 1           the next query hangs or crashes
//   no_init 1                 nvmlInit fails
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace {

using Return = int;
constexpr Return kSuccess = 0, kNotSupported = 3, kUnknown = 999, kTimeout = 10, kLost = 15;

std::map<std::string, std::string> Answers() {
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&Answers), &self);
  std::ifstream file(std::string(self.dli_fname) + ".answers");
  std::map<std::string, std::string> answers;
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    answers[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
  }
  if (answers.contains("crash")) {
    raise(SIGSEGV);
  }
  while (answers.contains("hang")) {
    pause();
  }
  return answers;
}

Return Text(const char* name, char* into, unsigned bytes) {
  const std::map<std::string, std::string> answers = Answers();
  if (answers.contains("lost")) {
    return kLost;
  }
  const auto found = answers.find(name);
  if (found == answers.end()) {
    return kNotSupported;
  }
  if (found->second == "endless") {
    std::memset(into, 'A', bytes);
  } else {
    std::strncpy(into, found->second.c_str(), bytes);
  }
  return kSuccess;
}

template <typename Number>
Return Value(const char* name, Number* into) {
  const std::map<std::string, std::string> answers = Answers();
  const auto found = answers.find(name);
  if (answers.contains("lost")) {
    return kLost;
  }
  if (found == answers.end()) {
    return kNotSupported;
  }
  *into = static_cast<Number>(std::strtoull(found->second.c_str(), nullptr, 10));
  return kSuccess;
}

char device_of_test;

}  // namespace

struct PciInfo {
  char legacy[16];
  unsigned numbers[5];
  char bus[32];
};
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned instances[2];
};

extern "C" {

Return nvmlInit_v2() { return Answers().contains("no_init") ? kUnknown : kSuccess; }
Return nvmlSystemGetDriverVersion(char* into, unsigned bytes) { return Text("driver", into, bytes); }
Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  Value("count", count);
  return kSuccess;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) {
  *device = &device_of_test;
  return kSuccess;
}
Return nvmlDeviceGetUUID(void*, char* into, unsigned bytes) {
  const Return answer = Text("uuid", into, bytes);
  // The device stays known.
  if (answer == kLost) {
    std::strncpy(into, Answers()["uuid"].c_str(), bytes);
  }
  return answer;
}
Return nvmlDeviceGetPciInfo_v3(void*, PciInfo* info) { return Text("bus", info->bus, sizeof(info->bus)); }
Return nvmlDeviceGetTemperature(void*, unsigned, unsigned* value) { return Value("temperature", value); }
Return nvmlDeviceGetPowerUsage(void*, unsigned* value) { return Value("power", value); }
Return nvmlDeviceGetTotalEccErrors(void*, unsigned kind, unsigned, unsigned long long* value) {
  return Value(kind == 0 ? "ecc_corrected" : "ecc_uncorrected", value);
}
Return nvmlEventSetCreate(void** set) {
  *set = &device_of_test;
  return kSuccess;
}
Return nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return kSuccess; }
Return nvmlEventSetWait_v2(void*, Event* event, unsigned ms) {
  static std::string told;
  const std::string xid = Answers()["xid"];
  if (xid.empty() || xid == told) {
    usleep(ms * 1000);
    return kTimeout;
  }
  told = xid;
  *event = {&device_of_test, 8, std::strtoull(xid.c_str(), nullptr, 10), {}};
  return kSuccess;
}

}  // extern "C"
