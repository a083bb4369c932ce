// SPDX-License-Identifier: Apache-2.0
// The completion thread's part: the work left when the device is done.
#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/opencl/flight.h"

namespace hpvm::opencl {
namespace {

std::optional<int64_t> TimeOf(const Event& event, cl_profiling_info what) {
  cl_ulong ns = 0;
  if (!event || clGetEventProfilingInfo(event.get(), what, sizeof(ns), &ns, nullptr) != CL_SUCCESS) {
    return std::nullopt;
  }
  return static_cast<int64_t>(ns);
}

}  // namespace

Status OpenClFlight::Finish() {
  const Status waited = WaitForDevice();
  if (status_.ok()) {
    status_ = waited;
  }
  if (submission_.failure != nullptr && !status_.ok()) {
    submission_.failure->node = failed_node_;
  }
  // A trap takes precedence over later failures.
  if (waited.ok() && slots_.count() != 0) {
    if (Status trapped = slots_.Check(traps_->records(slots_.count()), submission_.failure); !trapped.ok()) {
      traps_->is_dirty = true;
      status_ = trapped;
    }
  } else if (traps_ != nullptr) {
    traps_->is_dirty = true;
  }
  FillTimings();
  if (!status_.ok()) {
    return status_;
  }
  TellChoosers();
  return RunDownloads();
}

Status OpenClFlight::WaitForDevice() {
  if (!done_) {
    const cl_int plain = queue_.plain_ ? clFinish(queue_.plain_.get()) : CL_SUCCESS;
    const cl_int main = clFinish(queue_.main_.get());
    return queue_.health_.JudgeEvent(plain == CL_SUCCESS ? main : plain, "Waiting for a submission");
  }
  const cl_event done = done_.get();
  cl_int error = clWaitForEvents(1, &done);
  cl_int state = CL_COMPLETE;
  if (clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, nullptr) == CL_SUCCESS &&
      state < CL_COMPLETE) {
    error = state;
  }
  return queue_.health_.JudgeEvent(error, "Running a submission");
}

// Reads into pinned memory run ahead of the copies out of it.
Status OpenClFlight::RunDownloads() {
  // If a launch before the copies has trapped, host memory stays unchanged.
  const auto may_write = [&] { return gpu::AwaitAll(behind_); };
  if (!queue_.stages_) {
    HPVMD_RETURN_IF_ERROR(may_write());
  }
  gpu::Arrivals arrivals(queue_.downloads_.ring(), may_write);
  for (const Download& download : downloads_) {
    // The last of several copies to the same bytes takes effect.
    if (arrivals.Touches(download.target, download.bytes)) {
      HPVMD_RETURN_IF_ERROR(arrivals.Finish());
    }
    Pin* const pin = queue_.stages_ ? queue_.PinOf(download.block, download.bytes) : nullptr;
    if (pin == nullptr && queue_.stages_ && gpu::SmallCopies::IsSmall(download.bytes)) {
      const gpu::SmallCopy small{
          .buffer = download.source, .offset = download.offset, .bytes = download.bytes, .host = download.target};
      if (!small_downloads_.Takes(small)) {
        HPVMD_RETURN_IF_ERROR(FlushDownloads(arrivals));
      }
      small_downloads_.Add(small);
      continue;
    }
    HPVMD_RETURN_IF_ERROR(FlushDownloads(arrivals));
    HPVMD_RETURN_IF_ERROR(RunDownload(download, pin, arrivals));
  }
  HPVMD_RETURN_IF_ERROR(FlushDownloads(arrivals));
  return arrivals.Finish();
}

Status OpenClFlight::FlushDownloads(gpu::Arrivals& arrivals) {
  if (small_downloads_.is_empty()) {
    return absl::OkStatus();
  }
  small_downloads_.Plan();
  const auto take = [&] { return arrivals.Take(); };
  HPVMD_ASSIGN_OR_RETURN(const gpu::SharedSlot::Part part,
                         queue_.downloads_.shared().Take(small_downloads_.staged_bytes(), take));
  const cl_command_queue queue = queue_.download_.get();
  const std::span<const gpu::CopySpan> spans = small_downloads_.spans();
  Event arrived;
  cl_int error = CL_SUCCESS;
  for (const gpu::CopySpan& span : spans) {
    // Safety: downloaded buffers belong to this device.
    const cl_mem memory = static_cast<const OpenClBuffer&>(*span.buffer).memory();
    error = clEnqueueReadBuffer(queue, memory, CL_FALSE, span.offset, span.bytes, part.data + span.staged, 0, nullptr,
                                &span == &spans.back() ? arrived.out() : nullptr);
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(error, queue, kDownloading));
  }
  queue_.downloads_.Sent(*part.slot, std::move(arrived));
  HPVMD_RETURN_IF_ERROR(queue_.downloads_.Await(*part.slot));
  // If a launch before the copies has trapped, host memory stays unchanged.
  HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
  small_downloads_.ForEachArrival(
      part.data, [](const uint8_t* staged, uint8_t* host, uint64_t bytes) { std::memcpy(host, staged, bytes); });
  small_downloads_.Clear();
  return absl::OkStatus();
}

Status OpenClFlight::RunDownload(const Download& download, Pin* pin, gpu::Arrivals& arrivals) {
  const cl_command_queue queue = queue_.download_.get();
  const cl_mem source = download.source->memory();
  if (!queue_.stages_) {
    const cl_int error = clEnqueueReadBuffer(queue, source, CL_TRUE, download.offset, download.bytes, download.target,
                                             0, nullptr, nullptr);
    return queue_.health_.Judge(error, queue, kDownloading);
  }
  if (pin != nullptr) {
    // If a launch before the copy has trapped, host memory stays unchanged.
    HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
    const auto enqueue = [&](uint64_t at, uint64_t piece, cl_event* done) {
      return clEnqueueReadBuffer(queue, source, CL_FALSE, download.offset + at, piece, download.target + at, 0, nullptr,
                                 done);
    };
    return CopyDirectly({queue, /*is_up=*/false, download.block, pin, download.bytes, kDownloading, enqueue});
  }
  const auto receive = [&](const gpu::StagingSlot& slot, uint64_t at, uint64_t bytes) {
    Event arrived;
    cl_int error =
        clEnqueueReadBuffer(queue, source, CL_FALSE, download.offset + at, bytes, slot.data, 0, nullptr, arrived.out());
    if (error == CL_SUCCESS) {
      queue_.downloads_.Sent(slot, std::move(arrived));
      error = clFlush(queue);
    }
    return queue_.health_.Judge(error, queue, kDownloading);
  };
  return arrivals.Download(
      download.target, download.bytes, [&] { return arrivals.Take(); }, receive);
}

void OpenClFlight::FillTimings() {
  int64_t end_before = 0;
  for (const Sample& sample : samples_) {
    const int64_t start = std::max(end_before, TimeOf(sample.first, CL_PROFILING_COMMAND_START).value_or(end_before));
    const int64_t end = std::max(start, TimeOf(sample.last, CL_PROFILING_COMMAND_END).value_or(start));
    const auto count = static_cast<int64_t>(sample.end_node - sample.first_node);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t node = nodes_[sample.first_node + static_cast<size_t>(i)];
      if (node < submission_.timings.size()) {
        NodeTiming& timing = submission_.timings[node];
        timing.start_ns = start + (end - start) * i / count;
        timing.end_ns = start + (end - start) * (i + 1) / count;
        timing.is_shared = sample.is_mixed;
      }
    }
    end_before = end;
  }
}

void OpenClFlight::TellChoosers() {
  for (const Measured& measured : measured_) {
    const std::optional<int64_t> start = TimeOf(measured.first, CL_PROFILING_COMMAND_START);
    const std::optional<int64_t> end = TimeOf(measured.last, CL_PROFILING_COMMAND_END);
    if (start.has_value() && end.has_value() && *end > *start) {
      measured.chooser->Took(measured.facts, measured.parts, *end - *start);
    }
  }
}

}  // namespace hpvm::opencl
