// SPDX-License-Identifier: Apache-2.0
// The submit thread's part: enqueues commands.
#include "backends/opencl/flight.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>

#include "backends/opencl/fill.h"

namespace hpvm::opencl {
namespace {

// Up to this many dispatches of a submission are timed individually; in longer lists, groups of kTimedTogether.
constexpr uint32_t kTimedAloneMax = 64;
constexpr uint32_t kTimedTogether = 512;
// A sequence of at least this many launches justifies switching to the queue without a clock, and back for the launch
// that ends the timed group: each switch costs the device about 10 us.
constexpr size_t kPlainLaunchesMin = 128;
// Commands between flushes, so that the device starts while more are enqueued.
constexpr uint32_t kCommandsPerFlush = 128;
// Copies between pinned memory and the device are cut into pieces, kPiecesAhead of which are in progress at a time.
constexpr uint64_t kPieceBytes = 16 * limits::kMiB;
constexpr size_t kPiecesAhead = 2;
constexpr uint64_t kCheckedBytesMin = 4 * limits::kMiB;
// A repeated byte is written in words of this size; short fills in bytes.
constexpr uint32_t kPatternBytes = 16;

Event Shared(const Event& event) {
  if (event) {
    clRetainEvent(event.get());
  }
  return Event(event.get());
}

bool IsStopped(const Submission& submission) {
  return submission.stop != nullptr && submission.stop->load(std::memory_order_relaxed) != 0;
}

// Buffers belong to this device unless the host can see them.
OpenClBuffer& OfDevice(Buffer& buffer) { return static_cast<OpenClBuffer&>(buffer); }

bool IsDownload(const Command& command, const Submission& submission) {
  const auto* copy = std::get_if<CopyCommand>(&command);
  return copy != nullptr && copy->target < submission.buffers.size() && submission.buffers[copy->target] != nullptr &&
         submission.buffers[copy->target]->host() != nullptr;
}

// Returns the index after the consecutive launches that begin at `begin`.
size_t EndOfLaunches(const std::vector<Command>& commands, size_t begin) {
  const auto first = commands.begin() + static_cast<ptrdiff_t>(begin);
  const auto is_launch = [](const Command& command) { return std::holds_alternative<DispatchCommand>(command); };
  return static_cast<size_t>(std::find_if_not(first, commands.end(), is_launch) - commands.begin());
}

std::string GroupText(const std::array<uint32_t, 3>& group) {
  return "(" + std::to_string(group[0]) + ", " + std::to_string(group[1]) + ", " + std::to_string(group[2]) + ")";
}

}  // namespace

OpenClFlight::OpenClFlight(OpenClQueue& queue, const Submission& submission)
    : queue_(queue),
      submission_(submission),
      dispatch_count_(static_cast<uint32_t>(gpu::CountLaunches(submission.commands))),
      groups_(submission.commands, dispatch_count_ <= kTimedAloneMax ? 1 : kTimedTogether) {}

OpenClFlight::~OpenClFlight() {
  if (traps_ != nullptr) {
    queue_.traps_.Give(std::move(traps_));
  }
}

void OpenClFlight::Enqueue(const gpu::Milestones& behind) {
  status_ = queue_.health_.Check();
  current_ = queue_.main_.get();
  if (status_.ok()) {
    status_ = WaitFor(behind);
  }
  if (status_.ok() && submission_.commands != nullptr) {
    status_ = EnqueueCommands();
  }
  const Status closed = Close();
  if (status_.ok()) {
    status_ = closed;
  }
  if (!status_.ok()) {
    gpu::ForgetWords(submission_);
  }
}

Status OpenClFlight::WaitFor(const gpu::Milestones& behind) {
  if (behind.empty()) {
    return absl::OkStatus();
  }
  behind_ = behind;
  std::vector<cl_event> events;
  for (const std::shared_ptr<const gpu::Milestone>& milestone : behind) {
    // Safety: milestones come from flights of this device.
    events.push_back(static_cast<const EventMilestone&>(*milestone).event());
  }
  return queue_.health_.Judge(
      clEnqueueBarrierWithWaitList(current_, static_cast<cl_uint>(events.size()), events.data(), nullptr), current_,
      "Waiting for another lane");
}

gpu::Behind OpenClFlight::behind() const {
  if (!status_.ok() || !done_ || !downloads_.empty()) {
    return {};
  }
  return {std::make_shared<const EventMilestone>(Shared(done_)), slots_.count() != 0};
}

Status OpenClFlight::EnqueueCommands() {
  const std::vector<Command>& commands = submission_.commands->commands;
  size_t end = commands.size();  // From here on there are only copies to the host.
  while (end > 0 && IsDownload(commands[end - 1], submission_)) {
    --end;
  }
  size_t launches_end = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    if (IsStopped(submission_)) {
      return Cancelled("The submission was stopped.");
    }
    const auto* copy = std::get_if<CopyCommand>(&commands[i]);
    if (copy == nullptr || i >= end) {
      HPVMD_RETURN_IF_ERROR(FlushUploads());
    }
    if (const auto* dispatch = std::get_if<DispatchCommand>(&commands[i])) {
      if (i >= launches_end) {
        launches_end = EndOfLaunches(commands, i);
        is_among_many_ = launches_end - i >= kPlainLaunchesMin;
      }
      precedes_empty_ = i + 1 < launches_end && gpu::IsEmpty(std::get<DispatchCommand>(commands[i + 1]));
      if (Status status = EnqueueDispatch(*dispatch); !status.ok()) {
        failed_node_ = dispatch->node;
        return status;
      }
    } else if (copy != nullptr) {
      follows_launch_ = false;
      HPVMD_RETURN_IF_ERROR(EnqueueCopy(*copy, i >= end));
    } else {
      follows_launch_ = false;
      HPVMD_RETURN_IF_ERROR(EnqueueFill(std::get<FillCommand>(commands[i])));
    }
    if (i % kCommandsPerFlush == kCommandsPerFlush - 1) {
      HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(clFlush(current_), current_, "Starting a submission"));
    }
  }
  return FlushUploads();
}

// Orders all commands on the previous queue before later ones on this queue.
Status OpenClFlight::SwitchTo(cl_command_queue queue) {
  if (queue == current_) [[likely]] {
    return absl::OkStatus();
  }
  Event behind;
  cl_int error = clEnqueueMarkerWithWaitList(current_, 0, nullptr, behind.out());
  if (error == CL_SUCCESS) {
    error = clFlush(current_);
  }
  const cl_event wait = behind.get();
  if (error == CL_SUCCESS) {
    error = clEnqueueBarrierWithWaitList(queue, 1, &wait, nullptr);
  }
  HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(error, current_, "Changing queues"));
  current_ = queue;
  return absl::OkStatus();
}

Status OpenClFlight::Use(OpenClBuffer& buffer) {
  if (const cl_event wait = buffer.TakeCleared(queue_.lane_); wait != nullptr) [[unlikely]] {
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(clEnqueueBarrierWithWaitList(current_, 1, &wait, nullptr), current_,
                                               "Waiting for a fresh buffer"));
    follows_launch_ = false;
  }
  const cl_mem memory = buffer.memory();
  if (buffer.is_imported() && std::find(acquired_.begin(), acquired_.end(), memory) == acquired_.end()) {
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(queue_.found_.acquire(current_, 1, &memory, 0, nullptr, nullptr),
                                               current_, "Acquiring shared memory"));
    acquired_.push_back(memory);
  }
  return absl::OkStatus();
}

Status OpenClFlight::EnqueueCopy(const CopyCommand& copy, bool is_last) {
  HPVMD_ASSIGN_OR_RETURN(Buffer * source, gpu::ViewedBuffer(submission_, copy.source, copy.source_offset, copy.bytes));
  HPVMD_ASSIGN_OR_RETURN(Buffer * target, gpu::ViewedBuffer(submission_, copy.target, copy.target_offset, copy.bytes));
  if (copy.bytes == 0) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(SwitchTo(queue_.main_.get()));
  if (source->host() != nullptr && target->host() != nullptr) {
    return Internal("An OpenCL device was given a copy between two buffers in host memory.");
  }
  if (source->host() != nullptr) {
    return Upload(source->block(), source->host() + copy.source_offset, OfDevice(*target), copy);
  }
  HPVMD_RETURN_IF_ERROR(FlushUploads());
  if (target->host() == nullptr) {
    return CopyWithin(OfDevice(*source), OfDevice(*target), copy);
  }
  OpenClBuffer& from = OfDevice(*source);
  HPVMD_RETURN_IF_ERROR(Use(from));
  uint8_t* to = target->host() + copy.target_offset;
  if (is_last && !from.is_imported()) {
    downloads_.push_back({&from, copy.source_offset, copy.bytes, to, target->block()});
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
  const cl_int error =
      clEnqueueReadBuffer(current_, from.memory(), CL_TRUE, copy.source_offset, copy.bytes, to, 0, nullptr, nullptr);
  return queue_.health_.Judge(error, current_, "Copying to host memory");
}

Status OpenClFlight::Upload(HostBlock* block, const uint8_t* source, OpenClBuffer& target, const CopyCommand& copy) {
  const uint64_t offset = copy.target_offset, bytes = copy.bytes;
  HPVMD_RETURN_IF_ERROR(Use(target));
  // In one queue with launches, pieces would wait for them.
  const bool is_apart = queue_.lane_ != Lane::kCompute || !queue_.found_.info.has_copy_lanes;
  // A client may write its memory while a device reads it, so indices go through staging memory.
  Pin* const pin = is_apart && !copy.has_indices ? queue_.PinOf(block, bytes) : nullptr;
  if (pin == nullptr && queue_.stages_ && gpu::SmallCopies::IsSmall(bytes)) {
    const uint64_t room = std::min(copy.room, target.bytes() - offset - bytes);
    // The source is only read.
    const gpu::SmallCopy small{&target, offset, bytes, room, const_cast<uint8_t*>(source), copy.has_indices};
    if (!small_uploads_.Takes(small)) {
      HPVMD_RETURN_IF_ERROR(FlushUploads());
    }
    small_uploads_.Add(small);
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(FlushUploads());
  target.words().Forget(offset, bytes);
  if (pin != nullptr) {
    const auto enqueue = [&](uint64_t at, uint64_t piece, cl_event* done) {
      return clEnqueueWriteBuffer(current_, target.memory(), CL_FALSE, offset + at, piece, source + at, 0, nullptr,
                                  done);
    };
    return CopyDirectly({current_, /*is_up=*/true, block, pin, bytes, kUploading, enqueue});
  }
  if (!queue_.stages_ && !copy.has_indices) {
    const cl_int error =
        clEnqueueWriteBuffer(current_, target.memory(), CL_FALSE, offset, bytes, source, 0, nullptr, nullptr);
    return queue_.health_.Judge(error, current_, kUploading);
  }
  return UploadPieces(source, target, copy);
}

Status OpenClFlight::UploadPieces(const uint8_t* source, OpenClBuffer& target, const CopyCommand& copy) {
  gpu::WordScan words;
  const gpu::StagingRing::Source from{source, copy.bytes, copy.has_indices ? &words : nullptr};
  const auto send = [&](const gpu::StagingSlot& slot, const uint8_t* staged, uint64_t at, uint64_t bytes) {
    Event sent;
    cl_int error = clEnqueueWriteBuffer(current_, target.memory(), CL_FALSE, copy.target_offset + at, bytes, staged, 0,
                                        nullptr, sent.out());
    if (error == CL_SUCCESS) {
      queue_.uploads_.Sent(slot, std::move(sent));
      // The end of a submission flushes the last commands.
      error = at + bytes < copy.bytes ? clFlush(current_) : CL_SUCCESS;
    }
    return queue_.health_.Judge(error, current_, kUploading);
  };
  gpu::StagingRing& ring = queue_.uploads_.ring();
  const auto take = [&] { return ring.Take(); };
  if (copy.bytes <= gpu::StagingRing::kSharedBytesMax) {
    HPVMD_ASSIGN_OR_RETURN(const gpu::SharedSlot::Part part, queue_.uploads_.shared().Fill(from, take));
    HPVMD_RETURN_IF_ERROR(send(*part.slot, part.data, 0, copy.bytes));
  } else {
    const auto submit = [&](const gpu::StagingSlot& slot, uint64_t at, uint64_t bytes) {
      return send(slot, slot.data, at, bytes);
    };
    HPVMD_RETURN_IF_ERROR(ring.Upload(from, take, submit));
  }
  if (copy.has_indices) {
    target.KeepWords(copy.target_offset, copy.bytes, words.range());
  }
  return absl::OkStatus();
}

Status OpenClFlight::FlushUploads() {
  if (small_uploads_.is_empty()) {
    return absl::OkStatus();
  }
  small_uploads_.Plan();
  const auto take = [&] { return queue_.uploads_.ring().Take(); };
  HPVMD_ASSIGN_OR_RETURN(const gpu::SharedSlot::Part part,
                         queue_.uploads_.shared().Take(small_uploads_.staged_bytes(), take));
  small_uploads_.Stage(part.data);
  small_uploads_.ForgetWords();
  const std::span<const gpu::CopySpan> spans = small_uploads_.spans();
  Event sent;
  for (const gpu::CopySpan& span : spans) {
    // The last command's event stands for all, because the queue is in order.
    const cl_int error =
        clEnqueueWriteBuffer(current_, OfDevice(*span.buffer).memory(), CL_FALSE, span.offset, span.bytes,
                             part.data + span.staged, 0, nullptr, &span == &spans.back() ? sent.out() : nullptr);
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(error, current_, kUploading));
  }
  queue_.uploads_.Sent(*part.slot, std::move(sent));
  small_uploads_.KeepWords();
  small_uploads_.Clear();
  return absl::OkStatus();
}

Status OpenClFlight::CopyDirectly(const DirectCopy& copy) {
  CopyFlow flow = queue_.copier_.PinnedFlow(copy.is_up, copy.bytes, kPiecesAhead * kPieceBytes);
  std::deque<std::pair<Event, uint64_t>> ahead;  // Events and sizes of pieces.
  const auto land = [&]() -> Status {
    const cl_event done = ahead.front().first.get();
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(clWaitForEvents(1, &done), copy.queue, copy.doing));
    flow.Moved(ahead.front().second);
    ahead.pop_front();
    return absl::OkStatus();
  };
  for (uint64_t at = 0; at < copy.bytes;) {
    if (ahead.size() == kPiecesAhead) {
      HPVMD_RETURN_IF_ERROR(land());
    }
    const uint64_t piece = std::min(kPieceBytes, copy.bytes - at);
    const bool checks = piece >= kCheckedBytesMin && copy.pin->TakeCheck();
    const hpvm::Time begin = RealClock().Now();
    Event done;
    cl_int error = copy.enqueue(at, piece, done.out());
    error = error == CL_SUCCESS ? clFlush(copy.queue) : error;
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(error, copy.queue, copy.doing));
    const Duration handing = RealClock().Now() - begin;
    ahead.emplace_back(std::move(done), piece);
    at += piece;
    if (checks) {
      while (!ahead.empty()) {
        HPVMD_RETURN_IF_ERROR(land());
      }
      // If the memory is not pinned, the call itself makes most of the copy.
      if (!queue_.found_.info.is_emulated && handing * 2 > RealClock().Now() - begin) {
        copy.block->Refuse(queue_.pinner_);
      }
    }
  }
  while (!ahead.empty()) {
    HPVMD_RETURN_IF_ERROR(land());
  }
  return absl::OkStatus();
}

Status OpenClFlight::CopyWithin(OpenClBuffer& source, OpenClBuffer& target, const CopyCommand& copy) {
  target.words().Forget(copy.target_offset, copy.bytes);
  HPVMD_RETURN_IF_ERROR(Use(source));
  HPVMD_RETURN_IF_ERROR(Use(target));
  const auto enqueue = [&](cl_mem from, uint64_t from_offset, cl_mem to, uint64_t to_offset) {
    return queue_.health_.Judge(
        clEnqueueCopyBuffer(current_, from, to, from_offset, to_offset, copy.bytes, 0, nullptr, nullptr), current_,
        "Copying on the device");
  };
  const uint64_t distance =
      std::max(copy.source_offset, copy.target_offset) - std::min(copy.source_offset, copy.target_offset);
  if (&source != &target || distance >= copy.bytes) {
    return enqueue(source.memory(), copy.source_offset, target.memory(), copy.target_offset);
  }
  cl_int error = CL_SUCCESS;
  Memory between(clCreateBuffer(queue_.context_, CL_MEM_READ_WRITE, copy.bytes, nullptr, &error));
  HPVMD_RETURN_IF_ERROR(FromCl(error, "Allocating room for a copy that overlaps itself"));
  HPVMD_RETURN_IF_ERROR(enqueue(source.memory(), copy.source_offset, between.get(), 0));
  HPVMD_RETURN_IF_ERROR(enqueue(between.get(), 0, target.memory(), copy.target_offset));
  temporaries_.push_back(std::move(between));
  return absl::OkStatus();
}

Status OpenClFlight::FillPiece(cl_mem memory, uint64_t offset, uint64_t bytes, uint8_t value, uint32_t pattern_bytes) {
  if (bytes == 0) {
    return absl::OkStatus();
  }
  std::array<uint8_t, kPatternBytes> pattern;
  pattern.fill(value);
  const FillRange range{memory, offset, bytes, queue_.found_.view_alignment};
  const cl_int error = opencl::EnqueueFill(current_, range, std::span(pattern).first(pattern_bytes), nullptr);
  return queue_.health_.Judge(error, current_, "Filling a buffer");
}

Status OpenClFlight::EnqueueFill(const FillCommand& fill) {
  HPVMD_ASSIGN_OR_RETURN(Buffer * target, gpu::ViewedBuffer(submission_, fill.target, fill.offset, fill.bytes));
  if (fill.bytes == 0) {
    return absl::OkStatus();
  }
  if (target->host() != nullptr) {
    return Internal("An OpenCL device was given a fill of a buffer in host memory.");
  }
  HPVMD_RETURN_IF_ERROR(SwitchTo(queue_.main_.get()));
  OpenClBuffer& buffer = OfDevice(*target);
  buffer.words().Forget(fill.offset, fill.bytes);
  HPVMD_RETURN_IF_ERROR(Use(buffer));
  const uint64_t end = fill.offset + fill.bytes;
  const uint64_t first = (fill.offset + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  const uint64_t last = end / kPatternBytes * kPatternBytes;
  if (first >= last) {
    return FillPiece(buffer.memory(), fill.offset, fill.bytes, fill.value, 1);
  }
  HPVMD_RETURN_IF_ERROR(FillPiece(buffer.memory(), fill.offset, first - fill.offset, fill.value, 1));
  HPVMD_RETURN_IF_ERROR(FillPiece(buffer.memory(), first, last - first, fill.value, kPatternBytes));
  return FillPiece(buffer.memory(), last, end - last, fill.value, 1);
}

bool OpenClFlight::IsTimed() const { return !submission_.timings.empty(); }

Status OpenClFlight::EnqueueDispatch(const DispatchCommand& dispatch) {
  if (queue_.lane_ != Lane::kCompute) {
    return Internal("A launch was submitted to a lane for copies.");
  }
  auto& executable = static_cast<OpenClExecutable&>(*dispatch.executable);
  HPVMD_RETURN_IF_ERROR(executable.reader().Read(dispatch, submission_, &inputs_));
  TrapTarget traps;
  HPVMD_RETURN_IF_ERROR(PrepareTraps(dispatch, &traps));
  if (gpu::IsEmpty(dispatch)) {
    Time(dispatch, Event(), Event());
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(executable.chooser().Choose(inputs_.facts, &chosen_));
  gpu::NoteVariant(chosen_, dispatch, submission_);
  for (Buffer* buffer : inputs_.buffers) {
    if (buffer == nullptr) {
      continue;
    }
    if (buffer->host() != nullptr) {
      return Internal("A buffer in host memory is an argument on device \"" + queue_.found_.info.id + "\".");
    }
    HPVMD_RETURN_IF_ERROR(Use(OfDevice(*buffer)));
  }
  const size_t place = nodes_.size();
  const bool needs_start = groups_.Begins(place) ? !follows_launch_ : needs_start_;
  // Launches without instances have no event that could end the sample.
  const bool may_end = groups_.Ends(place) || precedes_empty_;
  const bool has_event = chosen_.is_measured || (IsTimed() && (needs_start || may_end));
  const cl_command_queue ours = is_among_many_ && !has_event ? queue_.plain_.get() : queue_.main_.get();
  HPVMD_RETURN_IF_ERROR(SwitchTo(executable.queue() != nullptr ? executable.queue() : ours));
  Event first, last;
  HPVMD_RETURN_IF_ERROR(EnqueueParts(executable, chosen_.parts, traps, has_event, &first, &last));
  Time(dispatch, first, last);
  follows_launch_ = true;
  if (chosen_.is_measured) {
    measured_.push_back(
        {&executable.chooser(), inputs_.facts, std::move(chosen_.parts), std::move(first), std::move(last)});
  }
  return absl::OkStatus();
}

// Returns the dispatch's record among the submission's, whose memory is allocated at the first one.
Status OpenClFlight::PrepareTraps(const DispatchCommand& dispatch, TrapTarget* traps) {
  if (traps_ == nullptr) {
    HPVMD_ASSIGN_OR_RETURN(traps_, queue_.traps_.Take(dispatch_count_));
  }
  traps->records = {traps_->device.get(), traps_->serial};
  if (static_cast<OpenClExecutable&>(*dispatch.executable).can_trap()) {
    traps->index = slots_.Take(dispatch);
  }
  return absl::OkStatus();
}

Status OpenClFlight::EnqueueParts(OpenClExecutable& executable, std::span<const gpu::Part> parts,
                                  const TrapTarget& traps, bool is_timed, Event* first, Event* last) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const gpu::Part& part = parts[i];
    HPVMD_ASSIGN_OR_RETURN(const cl_kernel kernel, executable.Prepare(inputs_, part, traps));
    std::array<size_t, 3> global, local;
    cl_uint dimensions = 1;
    for (cl_uint d = 0; d < 3; ++d) {
      local[d] = part.group[d];
      global[d] = size_t{part.groups[d]} * part.group[d];
      dimensions = global[d] > 1 ? d + 1 : dimensions;
    }
    Event* event = !is_timed ? nullptr : i == 0 ? first : i + 1 == parts.size() ? last : nullptr;
    const cl_int error = clEnqueueNDRangeKernel(current_, kernel, dimensions, nullptr, global.data(), local.data(), 0,
                                                nullptr, event == nullptr ? nullptr : event->out());
    if (error != CL_SUCCESS) [[unlikely]] {
      const std::string doing =
          "Launching kernel \"" + executable.artifact().entry + "\" in groups of " + GroupText(part.group);
      const bool is_group = error == CL_INVALID_WORK_GROUP_SIZE || error == CL_INVALID_WORK_ITEM_SIZE;
      return is_group ? FailedPrecondition(doing + " fails with " + ErrorName(error) + ".")
                      : queue_.health_.Judge(error, current_, doing);
    }
  }
  if (is_timed && parts.size() == 1) {
    *last = Shared(*first);
  }
  return absl::OkStatus();
}

void OpenClFlight::Time(const DispatchCommand& dispatch, const Event& first, const Event& last) {
  if (!IsTimed()) {
    return;
  }
  const size_t place = nodes_.size();
  nodes_.push_back(dispatch.node);
  if (groups_.Begins(place)) {
    samples_.push_back({.first_node = place, .like = &dispatch});
    needs_start_ = !follows_launch_;
  }
  Sample& sample = samples_.back();
  sample.end_node = place + 1;
  sample.is_mixed |= !gpu::AreAlike(*sample.like, dispatch);
  const bool is_alone = groups_.Begins(place) && groups_.Ends(place);
  if (first && (needs_start_ || is_alone)) {
    sample.first = Shared(first);
    needs_start_ = false;
  }
  if (last) {
    sample.last = Shared(last);
  }
}

// Releases imported memory, reads the trap records, and marks the end.
Status OpenClFlight::Close() {
  HPVMD_RETURN_IF_ERROR(SwitchTo(queue_.main_.get()));
  if (!acquired_.empty()) {
    HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(
        queue_.found_.release(current_, static_cast<cl_uint>(acquired_.size()), acquired_.data(), 0, nullptr, nullptr),
        current_, "Releasing shared memory"));
  }
  const cl_int error = slots_.count() != 0
                           ? clEnqueueReadBuffer(current_, traps_->device.get(), CL_FALSE, 0, slots_.bytes(),
                                                 traps_->host.data(), 0, nullptr, done_.out())
                           : clEnqueueMarkerWithWaitList(current_, 0, nullptr, done_.out());
  HPVMD_RETURN_IF_ERROR(queue_.health_.Judge(error, current_, "Ending a submission"));
  return queue_.health_.Judge(clFlush(current_), current_, "Starting a submission");
}

}  // namespace hpvm::opencl
