// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/near_cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>

namespace hpvm::gpu {
namespace {

// Parses "0-15,32-47"; returns nullopt for anything else.
std::optional<NearCpus> ParseList(const std::string& text) {
  NearCpus cpus;
  const char* at = text.c_str();
  while (*at != '\0' && *at != '\n') {
    unsigned first = 0, last = 0;
    int read = 0;
    if (sscanf(at, "%u%n", &first, &read) != 1) {
      return std::nullopt;
    }
    at += read;
    last = first;
    if (*at == '-') {
      if (sscanf(at, "-%u%n", &last, &read) != 1) {
        return std::nullopt;
      }
      at += read;
    }
    for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
      cpus.push_back(cpu);
    }
    at += *at == ',' ? 1 : 0;
  }
  return cpus;
}

}  // namespace

std::string ToText(const PciAddress& address) {
  char name[48];
  snprintf(name, sizeof name, "%04x:%02x:%02x.%x", address.domain, address.bus, address.device, address.function);
  return name;
}

NearCpus CpusNear(const PciAddress& address, const std::string& folder) {
  std::ifstream file(folder + "/" + ToText(address) + "/local_cpulist");
  std::string text;
  std::getline(file, text);
  const std::optional<NearCpus> cpus = ParseList(text);
  const long all = sysconf(_SC_NPROCESSORS_CONF);
  return cpus.has_value() && static_cast<long>(cpus->size()) < all ? *cpus : NearCpus();
}

void StayNear(const NearCpus& cpus) {
  cpu_set_t allowed, near;
  CPU_ZERO(&near);
  if (cpus.empty() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  for (const uint32_t cpu : cpus) {
    if (CPU_ISSET(cpu, &allowed)) {
      CPU_SET(cpu, &near);
    }
  }
  if (CPU_COUNT(&near) > 0) {
    sched_setaffinity(0, sizeof near, &near);  // If refused, copies are slower but correct.
  }
}

}  // namespace hpvm::gpu
