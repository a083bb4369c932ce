// SPDX-License-Identifier: Apache-2.0
// Texts about devices.
#ifndef HPVMD_CLIENT_CTL_TEXT_DEVICE_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_DEVICE_TEXT_H_

#include <string>

#include "hpvm/v1/record.pb.h"

namespace hpvm::ctl {

// Returns the state, such as "READY"; "PAUSED" in whatever state, and "FENCED" when the device's health forbids work.
inline std::string DeviceStateText(const v1::Device& device) {
  if (device.has_paused() || !device.health().fence().empty()) {
    return device.has_paused() ? "PAUSED" : "FENCED";
  }
  return v1::Device::State_Name(device.state()).substr(sizeof("STATE_") - 1);
}

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_DEVICE_TEXT_H_
