// SPDX-License-Identifier: Apache-2.0
// Uploads and downloads in chunks. Two messages are in use at once: while one is copied to or from memory, gRPC works
// on the other. The next callback may come on another thread meanwhile, so each callback holds the call's mutex; gRPC
// never runs a callback inside another one.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/failpoint.h"
#include "base/io/memfd.h"
#include "server/core/state/request_options.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

// Returns kOutOfRange unless the buffer holds `bytes` bytes from `at` on.
Status CheckRange(const v1::Buffer& buffer, uint64_t at, uint64_t bytes) {
  const uint64_t size = buffer.size_bytes();
  if (at <= size && bytes <= size - at) {
    return absl::OkStatus();
  }
  return MakeStatus(absl::StatusCode::kOutOfRange, "The bytes from " + std::to_string(at) + " on (" +
                                                       std::to_string(bytes) + ") go beyond the buffer's end (" +
                                                       std::to_string(size) + ").");
}

// Reads a client's stream into a sink, which has path(), Open(), Start(header), Add(data) and End(); End fills the
// response.
template <typename Request, typename Sink>
class UploadCall final : public grpc::ServerReadReactor<Request> {
 public:
  UploadCall(StatusOr<TenantRef> tenant, Sink sink) : sink_(std::move(sink)) {
    std::lock_guard lock(mutex_);
    Status status = tenant.status();
    if (status.ok()) {
      sink_.tenant = *std::move(tenant);
      status = sink_.Open();
    }
    if (status.ok()) {
      this->StartRead(&messages_[0]);
    } else {
      End(status);
    }
  }

  void OnReadDone(bool ok) override {
    const Callback watched(sink_.path(), sink_.tenant);
    std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
    if (!ok) {
      End(started_ ? sink_.End() : InvalidArgument("The stream ended before its header."));
      return;
    }
    const Request& message = messages_[current_];
    if (const Outcome metered = sink_.core.quotas().meter().More(*sink_.tenant, message.ByteSizeLong());
        !metered.ok()) {
      ended_ = true;
      this->Finish(ToGrpc(metered));
      return;
    }
    if (started_ == message.has_header()) {
      End(InvalidArgument(started_ ? "Only the first message may have a header." : "The first message has no header."));
      return;
    }
    if (!started_) {
      started_ = true;
      Status status = CheckRequestOptions(message.header().options(), /*key_honoured=*/false);
      status = status.ok() ? sink_.Start(message.header()) : status;
      if (!status.ok()) {
        End(status);
        return;
      }
    }
    current_ ^= 1;
    this->StartRead(&messages_[current_]);
    Status status = HPVMD_FAILPOINT("service.upload.receive");
    status = status.ok() ? sink_.Add(message.data()) : status;
    if (!status.ok()) {
      End(status);
    }
  }

  void OnDone() override {
    const Callback watched(sink_.path(), sink_.tenant);
    delete this;
  }

 private:
  void End(const Status& status) {
    ended_ = true;
    this->Finish(ToGrpc(status));
  }

  std::mutex mutex_;
  Sink sink_;
  std::array<Request, 2> messages_;
  size_t current_ = 0;
  bool started_ = false, ended_ = false;
};

// PutModule and PutGraph.
template <typename Response>
struct BlobSink {
  Core& core;
  Graphs::BlobKind kind;
  Response* response;
  TenantRef tenant = nullptr;
  std::unique_ptr<BlobUpload> upload = nullptr;
  bool existed = false, counted = false;

  BlobSink(Core& c, Graphs::BlobKind k, Response* r) : core(c), kind(k), response(r) {}
  BlobSink(BlobSink&& other) noexcept = default;
  ~BlobSink() {
    if (counted && tenant != nullptr) {
      core.graphs().EndUpload(*tenant);
    }
  }

  const char* path() const {
    return kind == Graphs::BlobKind::kModule ? "/hpvm.v1.Hpvm/PutModule" : "/hpvm.v1.Hpvm/PutGraph";
  }

  // Called before the first message: a call that never sends one takes memory too.
  Status Open() {
    HPVMD_RETURN_IF_ERROR(core.graphs().BeginUpload(*tenant));
    counted = true;
    return absl::OkStatus();
  }

  template <typename Header>
  Status Start(const Header& header) {
    const std::shared_ptr<const Config> config = core.config();
    uint32_t module_kind = 0;
    if constexpr (requires { header.kind(); }) {
      module_kind = static_cast<uint32_t>(header.kind());
    }
    const bool module = kind == Graphs::BlobKind::kModule;
    HPVMD_ASSIGN_OR_RETURN(
        upload, BlobUpload::Start(module ? "module" : "graph document", header.sha256(), header.size_bytes(),
                                  module ? config->limits_module_bytes_max : config->limits_document_bytes_max,
                                  module_kind, header.name()));
    existed = core.graphs().HasBlob(*tenant, kind, upload->hash());
    if (!existed) {
      HPVMD_ASSIGN_OR_RETURN(scheduler::Lease host_bytes, core.graphs().HoldHostBytes(*tenant, upload->size_bytes()));
      upload->PayWith(std::move(host_bytes));
    }
    return absl::OkStatus();
  }

  Status Add(const std::string& data) { return existed ? absl::OkStatus() : upload->Add(data); }

  Status End() {
    // Finish takes the blob, and these fields with it.
    response->set_sha256(ToHex(upload->hash()));
    response->set_size_bytes(upload->size_bytes());
    response->set_existed(existed);
    if (!existed) {
      if (upload->received_bytes() == 0) {
        return NotFound("The " + std::string(kind == Graphs::BlobKind::kModule ? "module" : "graph document") +
                        " is not known; send its bytes.");
      }
      HPVMD_ASSIGN_OR_RETURN(BlobRef blob, upload->Finish());
      HPVMD_RETURN_IF_ERROR(core.graphs().InsertBlob(*tenant, kind, std::move(blob)).status());
    }
    return absl::OkStatus();
  }
};

struct BufferSink {
  Core& core;
  v1::WriteBufferResponse* response;
  TenantRef tenant = nullptr;
  Buffers::BufferAccess access = {};
  uint64_t at = 0, written = 0;

  static const char* path() { return "/hpvm.v1.Hpvm/WriteBuffer"; }
  static Status Open() { return absl::OkStatus(); }

  Status Start(const v1::WriteBufferRequest::Header& header) {
    HPVMD_ASSIGN_OR_RETURN(access, core.buffers().OpenBuffer(*tenant, header.buffer_id()));
    at = header.offset();
    return CheckRange(access.buffer, at, 0);
  }

  Status Add(const std::string& data) {
    HPVMD_RETURN_IF_ERROR(CheckRange(access.buffer, at, data.size()));
    HPVMD_RETURN_IF_ERROR(WriteAt(access.segment->fd.get(), at, BytesOf(data)));
    at += data.size();
    written += data.size();
    return absl::OkStatus();
  }

  Status End() {
    HPVMD_ASSIGN_OR_RETURN(*response->mutable_buffer(),
                           core.buffers().FinishWrite(*tenant, access.buffer.id(), access.segment));
    response->set_written_bytes(written);
    return absl::OkStatus();
  }
};

// Size of a download's next message: small at first, and doubled each time the client has taken one. A stream that
// nobody reads keeps its messages, so only few may be large at a time.
class ChunkSize {
 public:
  static constexpr uint64_t kSmallBytes = 64 * limits::kKiB;

  ChunkSize() = default;
  ~ChunkSize() { large_bytes_.fetch_sub(bytes_ - kSmallBytes); }
  ChunkSize(const ChunkSize&) = delete;
  ChunkSize& operator=(const ChunkSize&) = delete;

  uint64_t bytes() const { return bytes_; }
  void Grow() {
    const uint64_t more = std::min(bytes_, limits::kChunkBytes - bytes_);
    if (large_bytes_.fetch_add(more) + more > kLargeBytesMax) {
      large_bytes_.fetch_sub(more);
    } else {
      bytes_ += more;
    }
  }

 private:
  // Limit of all downloads of the process together above kSmallBytes; three times this is in memory.
  static constexpr uint64_t kLargeBytesMax = 4 * limits::kMiB;
  static inline std::atomic<uint64_t> large_bytes_{0};
  uint64_t bytes_ = kSmallBytes;
};

// Writes a range of bytes as a server stream. `fill_header` puts the header into the first message.
template <typename Response>
class DownloadCall final : public grpc::ServerWriteReactor<Response>, public SelfOwned<DownloadCall<Response>> {
 public:
  struct Source {
    std::function<void(Response&)> fill_header;
    SegmentRef segment;  // Alternatively:
    std::unique_ptr<DiskFile> file;
    std::string inline_bytes;
    uint64_t at = 0, end = 0;
    std::shared_ptr<void> slot = nullptr;  // Counts the download as the tenant's.
  };
  using Open = std::function<StatusOr<Source>()>;
  // Calls functions that read a disk in the tenant's turn, on another thread; when empty, at once.
  using Turns = std::function<void(std::function<void()>)>;

  // `path` is the method's and is never freed.
  DownloadCall(const char* path, StatusOr<TenantRef> tenant, Open open, Turns turns)
      : path_(path), tenant_(std::move(tenant)), open_(std::move(open)), turns_(std::move(turns)) {}

  void Begin() {
    std::lock_guard lock(mutex_);
    InTurn([this] {
      StatusOr<Source> source = open_();
      if (!source.ok()) {
        failed_ = source.status();
        return;
      }
      source_ = *std::move(source);
      source_.fill_header(messages_[0]);
      failed_ = Read(messages_[0]);
    });
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(path_, tenant_);
    std::lock_guard lock(mutex_);
    is_sent_ = true;
    if (!ok && failed_.ok()) {
      failed_ = Cancelled("The client went away.");
    }
    chunk_.Grow();
    Write();
  }

  void OnDone() override { this->ReleaseSelf(); }

 private:
  // `read` prepares the next message. The caller holds the mutex, also while `read` is called.
  void InTurn(std::function<void()> read) {
    is_read_ = false;
    if (turns_ == nullptr) {
      read();
      is_read_ = true;
      Write();
      return;
    }
    turns_([this, self = this->shared_from_this(), read = std::move(read)] {
      std::lock_guard lock(mutex_);
      read();
      is_read_ = true;
      Write();
    });
  }

  Status Read(Response& message) {
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("service.download.send"));
    const uint64_t count = std::min(chunk_.bytes(), source_.end - source_.at);
    std::string& data = *message.mutable_data();
    if (source_.file != nullptr) {
      data.resize(count);
      HPVMD_ASSIGN_OR_RETURN(const size_t got,
                             source_.file->ReadAt(source_.at, {reinterpret_cast<uint8_t*>(data.data()), count}));
      if (got != count) {
        return DataLoss("The stored output ends " + std::to_string(count - got) + " bytes early.");
      }
    } else if (source_.segment == nullptr) {
      data.assign(source_.inline_bytes, source_.at, count);
    } else {
      data.resize(count);  // The size is usually the same, so nothing is cleared.
      HPVMD_RETURN_IF_ERROR(
          ReadAt(source_.segment->fd.get(), source_.at, {reinterpret_cast<uint8_t*>(data.data()), count}));
    }
    source_.at += count;
    return absl::OkStatus();
  }

  // Called once the previous message has been sent: sends the prepared one, and then reads the next.
  void Write() {
    if (!is_sent_ || !is_read_ || finishing_) {
      return;
    }
    if (!failed_.ok()) {
      finishing_ = true;
      this->Finish(ToGrpc(failed_));
      return;
    }
    Response* ready = &messages_[current_];
    if (source_.at == source_.end) {
      finishing_ = true;
      this->StartWriteAndFinish(ready, grpc::WriteOptions(), grpc::Status::OK);
      return;
    }
    is_sent_ = false;
    this->StartWrite(ready);
    current_ ^= 1;
    InTurn([this] { failed_ = failed_.ok() ? Read(messages_[current_]) : failed_; });
  }

  const char* const path_;
  const StatusOr<TenantRef> tenant_;
  const Open open_;
  const Turns turns_;
  std::mutex mutex_;
  Source source_;
  std::array<Response, 2> messages_;
  size_t current_ = 0;
  ChunkSize chunk_;
  Status failed_;
  bool is_read_ = false, is_sent_ = true, finishing_ = false;
};

// For downloads of more than one message: a stream that nobody reads keeps several.
StatusOr<std::shared_ptr<void>> TakeDownloadSlot(Core& core, const TenantRef& tenant, uint64_t bytes) {
  if (bytes <= ChunkSize::kSmallBytes) {
    return std::shared_ptr<void>();
  }
  HPVMD_RETURN_IF_ERROR(core.graphs().BeginDownload(*tenant));
  return std::shared_ptr<void>(tenant.get(), [&core, tenant](void*) { core.graphs().EndDownload(*tenant); });
}

StatusOr<DownloadCall<v1::ReadBufferResponse>::Source> OpenBufferRange(Core& core, const StatusOr<TenantRef>& tenant,
                                                                       const v1::ReadBufferRequest& request) {
  HPVMD_RETURN_IF_ERROR(tenant.status());
  HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
  HPVMD_ASSIGN_OR_RETURN(Buffers::BufferAccess access, core.buffers().OpenBuffer(**tenant, request.buffer_id()));
  const uint64_t size = access.buffer.size_bytes(), at = request.offset();
  HPVMD_RETURN_IF_ERROR(CheckRange(access.buffer, at, request.size_bytes()));
  const uint64_t end = request.size_bytes() == 0 ? size : at + request.size_bytes();
  HPVMD_ASSIGN_OR_RETURN(std::shared_ptr<void> slot, TakeDownloadSlot(core, *tenant, end - at));
  return DownloadCall<v1::ReadBufferResponse>::Source{
      [buffer = access.buffer](v1::ReadBufferResponse& message) { *message.mutable_buffer() = buffer; },
      std::move(access.segment),
      nullptr,
      "",
      at,
      end,
      std::move(slot)};
}

// A source of bytes in the store, from an offset on.
template <typename Response, typename Stored, typename Header>
StatusOr<typename DownloadCall<Response>::Source> OpenStored(Core& core, const TenantRef& tenant, Stored stored,
                                                             uint64_t offset, const char* what, Header header) {
  const uint64_t size = stored.header.size_bytes();
  if (offset > size) {
    return MakeStatus(absl::StatusCode::kOutOfRange, "The offset (" + std::to_string(offset) + ") is beyond the " +
                                                         what + "'s end (" + std::to_string(size) + ").");
  }
  HPVMD_ASSIGN_OR_RETURN(std::shared_ptr<void> slot, TakeDownloadSlot(core, tenant, size - offset));
  return typename DownloadCall<Response>::Source{[header](Response& message) { *message.mutable_header() = header; },
                                                 nullptr,
                                                 std::move(stored.file),
                                                 std::move(stored.inline_bytes),
                                                 offset,
                                                 size,
                                                 std::move(slot)};
}

StatusOr<DownloadCall<v1::FetchOutputResponse>::Source> OpenOutput(Core& core, const StatusOr<TenantRef>& tenant,
                                                                   const v1::FetchOutputRequest& request) {
  HPVMD_RETURN_IF_ERROR(tenant.status());
  HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
  HPVMD_ASSIGN_OR_RETURN(JobReader::StoredBytes stored,
                         core.job_reader().FindOutput(**tenant, request.job_id(), request.name()));
  const v1::StoredOutput header = stored.header;
  return OpenStored<v1::FetchOutputResponse>(core, *tenant, std::move(stored), request.offset(), "output", header);
}

StatusOr<DownloadCall<v1::ExportJobResponse>::Source> OpenExport(Core& core, const StatusOr<TenantRef>& tenant,
                                                                 const v1::ExportJobRequest& request) {
  HPVMD_RETURN_IF_ERROR(tenant.status());
  HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
  HPVMD_ASSIGN_OR_RETURN(JobReader::ExportedPart part,
                         core.job_reader().Export(**tenant, request.job_id(), request.sha256()));
  const v1::ExportJobResponse::Header header = part.header;
  return OpenStored<v1::ExportJobResponse>(core, *tenant, std::move(part), request.offset(), "part", header);
}

// Reads of the store come in the tenant's turn.
std::function<void(std::function<void()>)> StoreTurns(Core& core, const StatusOr<TenantRef>& tenant) {
  if (!tenant.ok()) {
    return nullptr;
  }
  return [&core, tenant = *tenant](std::function<void()> read) {
    core.PostRead(tenant->name, [read = std::move(read)] {
      read();
      return FairQueue::Step::kDone;
    });
  };
}

}  // namespace

grpc::ServerReadReactor<v1::PutModuleRequest>* StartPutModule(Core& core, StatusOr<TenantRef> tenant,
                                                              v1::PutModuleResponse* response) {
  using Sink = BlobSink<v1::PutModuleResponse>;
  return new UploadCall<v1::PutModuleRequest, Sink>(std::move(tenant), Sink(core, Graphs::BlobKind::kModule, response));
}

grpc::ServerReadReactor<v1::PutGraphRequest>* StartPutGraph(Core& core, StatusOr<TenantRef> tenant,
                                                            v1::PutGraphResponse* response) {
  using Sink = BlobSink<v1::PutGraphResponse>;
  return new UploadCall<v1::PutGraphRequest, Sink>(std::move(tenant), Sink(core, Graphs::BlobKind::kGraph, response));
}

grpc::ServerReadReactor<v1::WriteBufferRequest>* StartWriteBuffer(Core& core, StatusOr<TenantRef> tenant,
                                                                  v1::WriteBufferResponse* response) {
  return new UploadCall<v1::WriteBufferRequest, BufferSink>(std::move(tenant), BufferSink{core, response});
}

grpc::ServerWriteReactor<v1::ReadBufferResponse>* StartReadBuffer(Core& core, StatusOr<TenantRef> tenant,
                                                                  const v1::ReadBufferRequest* request) {
  return DownloadCall<v1::ReadBufferResponse>::Create(
      "/hpvm.v1.Hpvm/ReadBuffer", tenant, [&core, tenant, request] { return OpenBufferRange(core, tenant, *request); },
      nullptr);
}

grpc::ServerWriteReactor<v1::FetchOutputResponse>* StartFetchOutput(Core& core, StatusOr<TenantRef> tenant,
                                                                    const v1::FetchOutputRequest* request) {
  return DownloadCall<v1::FetchOutputResponse>::Create(
      "/hpvm.v1.Hpvm/FetchOutput", tenant, [&core, tenant, request] { return OpenOutput(core, tenant, *request); },
      StoreTurns(core, tenant));
}

grpc::ServerWriteReactor<v1::ExportJobResponse>* StartExportJob(Core& core, StatusOr<TenantRef> tenant,
                                                                const v1::ExportJobRequest* request) {
  return DownloadCall<v1::ExportJobResponse>::Create(
      "/hpvm.v1.Hpvm/ExportJob", tenant, [&core, tenant, request] { return OpenExport(core, tenant, *request); },
      StoreTurns(core, tenant));
}

}  // namespace hpvm::server
