// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_CTL_TEXT_YAML_H_
#define HPVMD_CLIENT_CTL_TEXT_YAML_H_

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace hpvm::ctl {

// Formats the value as a YAML document that YAML 1.1 and 1.2 parsers read as the same value: texts that they would
// take for numbers, booleans or anything else are quoted. Invalid UTF-8 is replaced as in JSON.
std::string ToYaml(const nlohmann::ordered_json& value);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_YAML_H_
