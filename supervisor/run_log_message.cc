// SPDX-License-Identifier: Apache-2.0
#include "supervisor/run_log_message.h"

namespace hpvm {
namespace {

void SetInstance(const ExecutorLog::InstanceId& from, v1::InstanceId* to) {
  to->set_x(from[0]);
  to->set_y(from[1]);
  to->set_z(from[2]);
}

}  // namespace

v1::RunLog ToMessage(const ExecutorLog& log) {
  v1::RunLog message;
  for (const ExecutorLog::Line& from : log.lines) {
    v1::LogLine& to = *message.add_lines();
    to.set_node(from.node);
    SetInstance(from.instance, to.mutable_instance());
    to.set_text(from.text);
  }
  message.set_lines_dropped(log.lines_dropped);
  for (const ExecutorLog::Finding& from : log.findings) {
    v1::Finding& to = *message.add_findings();
    to.set_node(from.node);
    to.set_kind(from.kind);
    to.set_message(from.message);
    for (const ExecutorLog::InstanceId& instance : from.instances) {
      SetInstance(instance, to.add_instances());
    }
    to.set_buffer(from.buffer);
    to.set_place(from.place);
    to.set_count(from.count);
  }
  message.set_findings_dropped(log.findings_dropped);
  message.set_check_incomplete(log.check_incomplete);
  return message;
}

v1::NodePlacement ToMessage(const ExecutorNodeRecord& node) {
  v1::NodePlacement message;
  message.set_node(node.path);
  message.set_device(node.device);
  message.set_start_ns(static_cast<uint64_t>(node.start_ns));
  message.set_end_ns(static_cast<uint64_t>(node.end_ns));
  message.set_math(node.fast_math ? "fast" : "exact");
  message.set_is_estimate(node.is_estimate);
  message.set_first_instance(node.first);
  message.set_instance_count(node.count);
  message.set_total_ns(node.total_ns);
  message.set_runs(node.runs);
  message.set_variant(node.variant);
  return message;
}

}  // namespace hpvm
