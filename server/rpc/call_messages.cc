// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_messages.h"

#include <algorithm>
#include <iterator>

#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/operations.pb.h"
#include "server/identity/methods.h"

namespace hpvm::server {
namespace {

// gRPC passes messages without their type; the method determines it.
template <typename Message>
const Message& As(const void* message) {
  return *static_cast<const Message*>(message);
}

// Limit of the text about the buffers that the items of one call write, in the audit.
constexpr size_t kDetailBytesMax = 1'000;

template <typename Response>
void ReadError(const void* message, CallNotes* notes) {
  const v1::Status& error = As<Response>(message).error();
  notes->error = MakeStatus(static_cast<absl::StatusCode>(error.code()), error.message());
}

void ReadRun(const void* message, CallNotes* notes) {
  notes->object = As<v1::RunRequest>(message).handle();
  notes->changes = false;
}
void ReadRan(const void* message, CallNotes* notes) {
  for (const v1::OutputValue& output : As<v1::RunResponse>(message).outputs()) {
    notes->detail += (output.has_buffer() ? " " : "") + output.buffer().buffer_id();
  }
  ReadError<v1::RunResponse>(message, notes);
  notes->changes = !notes->detail.empty();
  notes->detail = "Into" + notes->detail + ".";
}
void ReadStream(const void* message, CallNotes* notes) {
  notes->object = As<v1::StreamRequest>(message).open().handle();
}
void ReadUpdate(const void* message, CallNotes* notes) {
  v1::UpdateTenantRequest request = As<v1::UpdateTenantRequest>(message);
  notes->object = notes->tenant = request.name();
  request.clear_options();
  request.clear_name();
  notes->detail = request.ShortDebugString();
}
void ReadTenant(const void* message, CallNotes* notes) {
  v1::Tenant tenant = As<v1::CreateTenantRequest>(message).tenant();
  notes->object = notes->tenant = tenant.name();
  tenant.clear_name();
  notes->detail = tenant.ShortDebugString();
}
void ReadToken(const void* message, CallNotes* notes) {
  const v1::Token& token = As<v1::CreateTokenResponse>(message).token();
  notes->object = token.id();
  notes->tenant = token.tenant();
  notes->detail = "For tenant " + token.tenant() + ", role " + v1::Role_Name(token.role()) + ".";
}
void ReadJob(const void* message, CallNotes* notes) {
  const auto& response = As<v1::SubmitResponse>(message);
  notes->attributes.emplace_back("hpvm.job_id", response.job().id());
  notes->attributes.emplace_back("hpvm.existed", response.existed());
  if (response.array_job_ids_size() > 0) {
    notes->attributes.emplace_back("hpvm.array_jobs", int64_t{response.array_job_ids_size()});
  }
  ReadError<v1::SubmitResponse>(message, notes);
}
void ReadSubmitted(const void* message, CallNotes* notes) {
  const auto& response = As<v1::SubmitResponse>(message);
  notes->object = response.job().id();
  notes->detail = response.existed() ? "The job existed." : "";
  ReadJob(message, notes);
}
void ReadHold(const void* message, CallNotes* notes) {
  const auto& request = As<v1::SetJobHoldRequest>(message);
  notes->object = request.job_id();
  notes->detail = !request.held() ? "Let go." : request.reason().empty() ? "Held." : "Held: " + request.reason();
}
void ReadRetried(const void* message, CallNotes* notes) {
  notes->detail = "As " + As<v1::SubmitResponse>(message).job().id() + ".";
  ReadJob(message, notes);
}
void ReadRunMany(const void* message, CallNotes* notes) {
  notes->object = As<v1::RunManyRequest>(message).handle();
  notes->changes = false;
  notes->attributes.emplace_back("hpvm.items", int64_t{As<v1::RunManyRequest>(message).items_size()});
}
// One message of several.
void ReadRanSome(const void* message, CallNotes* notes) {
  for (const v1::RunManyResponse::Result& result : As<v1::RunManyResponse>(message).results()) {
    for (const v1::OutputValue& output : result.run().outputs()) {
      if (output.has_buffer() && notes->detail.size() < kDetailBytesMax) {
        notes->detail += (notes->changes ? " " : "Into ") + output.buffer().buffer_id();
        notes->changes = true;
      }
    }
  }
}
void ReadSubmittedMany(const void* message, CallNotes* notes) {
  const auto& response = As<v1::SubmitManyResponse>(message);
  int64_t refused = 0, existed = 0;
  for (const v1::SubmitResponse& result : response.results()) {
    refused += result.has_error() ? 1 : 0;
    existed += result.existed() ? 1 : 0;
    if (notes->object.empty()) {
      notes->object = result.job().id();
    }
  }
  const int64_t count = response.results_size();
  notes->detail = std::to_string(count - refused) + " of " + std::to_string(count) + " jobs, of which " +
                  std::to_string(existed) + " existed; the object is the first.";
  notes->attributes.emplace_back("hpvm.jobs", count);
  notes->attributes.emplace_back("hpvm.jobs_refused", refused);
}
void ReadHostIntake(const void* message, CallNotes* notes) {
  const auto& request = As<v1::SetHostIntakeRequest>(message);
  notes->object = request.host().substr(0, 80);
  notes->detail = v1::HostIntake_IsValid(request.intake()) ? v1::HostIntake_Name(request.intake())
                                                           : std::to_string(request.intake());
}
void ReadPrepared(const void* message, CallNotes* notes) {
  const auto& response = As<v1::PrepareGraphResponse>(message);
  notes->detail = "Handle " + response.handle() + ".";
  notes->prepared = &response.summary().timing();
  ReadError<v1::PrepareGraphResponse>(message, notes);
}

template <typename Request>
v1::RequestOptions* OptionsOf(void* request) {
  return static_cast<Request*>(request)->mutable_options();
}
template <>
v1::RequestOptions* OptionsOf<v1::StreamRequest>(void* request) {
  auto* stream = static_cast<v1::StreamRequest*>(request);
  return stream->has_open() ? stream->mutable_open()->mutable_options() : nullptr;
}

constexpr CallMessages kMessages[] = {
    {"/hpvm.v1.Hpvm/PutModule", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::PutModuleRequest>(m).header().sha256(); }},
    {"/hpvm.v1.Hpvm/PutGraph", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::PutGraphRequest>(m).header().sha256(); }},
    {"/hpvm.v1.Hpvm/DeleteModule", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::DeleteModuleRequest>(m).sha256(); }},
    {"/hpvm.v1.Hpvm/PrepareGraph", "PrepareGraph", OptionsOf<v1::PrepareGraphRequest>,
     [](const void* m, CallNotes* t) { t->object = As<v1::PrepareGraphRequest>(m).graph_sha256(); }, ReadPrepared},
    {"/hpvm.v1.Hpvm/ReleaseGraph", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::ReleaseGraphRequest>(m).handle(); }},
    {"/hpvm.v1.Hpvm/Run", "Run", OptionsOf<v1::RunRequest>, ReadRun, ReadRan},
    {"/hpvm.v1.Hpvm/Stream", "Stream", OptionsOf<v1::StreamRequest>, ReadStream},
    {"/hpvm.v1.Hpvm/Submit", "Submit", OptionsOf<v1::SubmitRequest>, nullptr, ReadSubmitted},
    {"/hpvm.v1.Hpvm/CancelJob", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::CancelJobRequest>(m).job_id(); }},
    {"/hpvm.v1.Hpvm/SetJobHold", nullptr, nullptr, ReadHold},
    {"/hpvm.v1.Hpvm/RetryJob", "RetryJob", OptionsOf<v1::RetryJobRequest>,
     [](const void* m, CallNotes* t) { t->object = As<v1::RetryJobRequest>(m).job_id(); }, ReadRetried},
    {"/hpvm.v1.Hpvm/CreateBuffer", nullptr, nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::CreateBufferResponse>(m).buffer().id(); }},
    {"/hpvm.v1.Hpvm/WriteBuffer", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::WriteBufferRequest>(m).header().buffer_id(); }},
    {"/hpvm.v1.Hpvm/DeleteBuffer", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::DeleteBufferRequest>(m).buffer_id(); }},
    {"/hpvm.v1.Hpvm/RegisterBuffer", nullptr, nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::RegisterBufferResponse>(m).buffer().id(); }},
    {"/hpvm.v1.Hpvm/PublishBuffer", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::PublishBufferRequest>(m).buffer_id(); }},
    {"/hpvm.v1.Hpvm/RunMany", "RunMany", OptionsOf<v1::RunManyRequest>, ReadRunMany, ReadRanSome},
    {"/hpvm.v1.Hpvm/SubmitMany", "SubmitMany", OptionsOf<v1::SubmitManyRequest>, nullptr, ReadSubmittedMany},
    {"/hpvm.v1.Hpvm/OpenRing", nullptr, nullptr, nullptr, nullptr},
    {"/hpvm.v1.Admin/CreateTenant", nullptr, nullptr, ReadTenant},
    {"/hpvm.v1.Admin/UpdateTenant", nullptr, nullptr, ReadUpdate},
    {"/hpvm.v1.Admin/DeleteTenant", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = t->tenant = As<v1::DeleteTenantRequest>(m).name(); }},
    {"/hpvm.v1.Admin/CreateToken", nullptr, nullptr, nullptr, ReadToken},
    {"/hpvm.v1.Admin/RevokeToken", nullptr, nullptr,
     [](const void* m, CallNotes* t) { t->object = As<v1::RevokeTokenRequest>(m).id(); },
     [](const void* m, CallNotes* t) { t->tenant = As<v1::RevokeTokenResponse>(m).tenant(); }},
    {"/hpvm.v1.Operations/SetIntake", nullptr, nullptr,
     [](const void* m, CallNotes* t) {
       const auto& request = As<v1::SetIntakeRequest>(m);
       t->object = request.closed() ? "closed" : "open";
       t->detail = request.reason();
     }},
    {"/hpvm.v1.Operations/SetDevicePause", nullptr, nullptr,
     [](const void* m, CallNotes* t) {
       const auto& request = As<v1::SetDevicePauseRequest>(m);
       t->object = request.device().substr(0, 80);
       t->detail = (request.paused() ? "paused " : "resumed ") + request.reason();
     }},
    {"/hpvm.v1.Operations/SetHostIntake", nullptr, nullptr, ReadHostIntake},
};

// Checks that every recorded method has its row.
constexpr bool AllAreSaid() {
  for (const MethodFacts& method : kMethods) {
    bool is_said = method.change == Change::kNone;
    for (const CallMessages& messages : kMessages) {
      is_said |= messages.path == method.path;
    }
    if (!is_said) {
      return false;
    }
  }
  return true;
}
static_assert(AllAreSaid());

}  // namespace

const CallMessages* MessagesOf(std::string_view path) {
  const auto* found = std::find_if(std::begin(kMessages), std::end(kMessages),
                                   [&](const CallMessages& messages) { return messages.path == path; });
  return found == std::end(kMessages) ? nullptr : found;
}

}  // namespace hpvm::server
