// SPDX-License-Identifier: Apache-2.0
// Tests two tenants of one daemon: every call that takes an id treats the other tenant's objects like objects that
// never existed, with the same code and the same sentence.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "base/hash.h"
#include "hpvm/v1/operations.grpc.pb.h"
#include "server/testing/access_fixture.h"

namespace hpvm::server {
namespace {

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// One call by bob about one object.
struct Probe {
  const char* name;
  std::function<grpc::Status(const std::string& id)> call;
};

class TwoTenantsTest : public AccessFixture {
 protected:
  void SetUp() override {
    Start();
    MakeTenant("ann");
    MakeTenant("bob");
    ann_ = MakeToken("ann", Role::kOperator).secret;
    bob_ = MakeToken("bob", Role::kOperator).secret;
    stub_ = v1::Hpvm::NewStub(channel_);
    admin_ = v1::Admin::NewStub(channel_);
    operations_ = v1::Operations::NewStub(channel_);
  }

  // A unary call by bob whose request has the id in one field.
  template <typename Request, typename Response, typename Stub>
  auto Unary(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             void (*set)(Request&, const std::string&)) {
    return [this, &stub, method, set](const std::string& id) {
      Request request;
      set(request, id);
      Response response;
      return (stub.*method)(With(bob_).get(), request, &response);
    };
  }

  template <typename Request, typename Response, typename Start>
  grpc::Status Upload(const std::string& secret, Start start, const std::string& bytes, const std::string& sha256) {
    Response response;
    const auto context = With(secret);
    const auto writer = start(context.get(), &response);
    Request message;
    message.mutable_header()->set_sha256(sha256);
    message.mutable_header()->set_size_bytes(std::max<size_t>(1, bytes.size()));
    message.set_data(bytes);
    writer->Write(message);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status PutGraph(const std::string& secret, const std::string& bytes, const std::string& sha256) {
    return Upload<v1::PutGraphRequest, v1::PutGraphResponse>(
        secret, [this](auto* context, auto* response) { return stub_->PutGraph(context, response); }, bytes, sha256);
  }
  grpc::Status PutModule(const std::string& secret, const std::string& bytes, const std::string& sha256) {
    return Upload<v1::PutModuleRequest, v1::PutModuleResponse>(
        secret, [this](auto* context, auto* response) { return stub_->PutModule(context, response); }, bytes, sha256);
  }

  // The same code and, except for the id, the same sentence.
  void ExpectAlike(const std::vector<Probe>& probes, const std::string& foreign, const std::string& absent) {
    const auto without = [](std::string text, const std::string& id) {
      for (size_t at = text.find(id); !id.empty() && at != std::string::npos; at = text.find(id)) {
        text.replace(at, id.size(), "ID");
      }
      return text;
    };
    for (const Probe& probe : probes) {
      SCOPED_TRACE(probe.name);
      const grpc::Status of_foreign = probe.call(foreign), of_absent = probe.call(absent);
      EXPECT_FALSE(of_foreign.ok());
      EXPECT_EQ(of_foreign.error_code(), of_absent.error_code());
      EXPECT_EQ(without(of_foreign.error_message(), foreign), without(of_absent.error_message(), absent));
      EXPECT_EQ(without(of_foreign.error_details(), foreign), without(of_absent.error_details(), absent));
    }
  }

  std::string ann_, bob_;
  std::unique_ptr<v1::Hpvm::Stub> stub_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::unique_ptr<v1::Operations::Stub> operations_;
};

TEST_F(TwoTenantsTest, Buffers) {
  v1::CreateBufferRequest create;
  create.set_size_bytes(64);
  v1::CreateBufferResponse made;
  ASSERT_TRUE(stub_->CreateBuffer(With(ann_).get(), create, &made).ok());
  const std::vector<Probe> probes = {
      {"DeleteBuffer", Unary<v1::DeleteBufferRequest, v1::DeleteBufferResponse>(
                           *stub_, &v1::Hpvm::Stub::DeleteBuffer,
                           [](v1::DeleteBufferRequest& r, const std::string& id) { r.set_buffer_id(id); })},
      {"PublishBuffer", Unary<v1::PublishBufferRequest, v1::PublishBufferResponse>(
                            *stub_, &v1::Hpvm::Stub::PublishBuffer,
                            [](v1::PublishBufferRequest& r, const std::string& id) { r.set_buffer_id(id); })},
      {"ReadBuffer",
       [this](const std::string& id) {
         v1::ReadBufferRequest request;
         request.set_buffer_id(id);
         const auto context = With(bob_);
         const auto reader = stub_->ReadBuffer(context.get(), request);
         v1::ReadBufferResponse chunk;
         EXPECT_FALSE(reader->Read(&chunk));
         return reader->Finish();
       }},
      {"WriteBuffer",
       [this](const std::string& id) {
         v1::WriteBufferResponse response;
         const auto context = With(bob_);
         const auto writer = stub_->WriteBuffer(context.get(), &response);
         v1::WriteBufferRequest message;
         message.mutable_header()->set_buffer_id(id);
         message.set_data("x");
         writer->Write(message);
         writer->WritesDone();
         return writer->Finish();
       }},
  };
  ExpectAlike(probes, made.buffer().id(), "buf-00000000000000000000000000000000");
  // It still exists.
  v1::DeleteBufferRequest remove;
  remove.set_buffer_id(made.buffer().id());
  v1::DeleteBufferResponse removed;
  EXPECT_TRUE(stub_->DeleteBuffer(With(ann_).get(), remove, &removed).ok());
}

// A hash does not reveal whether another tenant has the same bytes.
TEST_F(TwoTenantsTest, ModulesAndGraphs) {
  const std::string bytes = "ann's own bytes", hash = ToHex(HashOf(bytes)), absent = ToHex(HashOf("nobody's"));
  ASSERT_TRUE(PutModule(ann_, bytes, hash).ok());
  ASSERT_TRUE(PutGraph(ann_, bytes, hash).ok());
  const std::vector<Probe> probes = {
      {"PutModule", [&](const std::string& id) { return PutModule(bob_, "", id); }},
      {"PutGraph", [&](const std::string& id) { return PutGraph(bob_, "", id); }},
      {"PrepareGraph", Unary<v1::PrepareGraphRequest, v1::PrepareGraphResponse>(
                           *stub_, &v1::Hpvm::Stub::PrepareGraph,
                           [](v1::PrepareGraphRequest& r, const std::string& id) { r.set_graph_sha256(id); })},
      {"Submit", Unary<v1::SubmitRequest, v1::SubmitResponse>(
                     *stub_, &v1::Hpvm::Stub::Submit,
                     [](v1::SubmitRequest& r, const std::string& id) { r.mutable_document()->set_graph_sha256(id); })},
  };
  ExpectAlike(probes, hash, absent);
}

TEST_F(TwoTenantsTest, TokensAndTenants) {
  const std::vector<Probe> of_tokens = {
      {"RevokeToken", Unary<v1::RevokeTokenRequest, v1::RevokeTokenResponse>(
                          *admin_, &v1::Admin::Stub::RevokeToken,
                          [](v1::RevokeTokenRequest& r, const std::string& id) { r.set_id(id); })},
  };
  ExpectAlike(of_tokens, MakeToken("ann", Role::kUser).token.id(), "tok-00000000000000000000000000000000");
  const std::vector<Probe> of_tenants = {
      {"GetTenant", Unary<v1::GetTenantRequest, v1::GetTenantResponse>(
                        *admin_, &v1::Admin::Stub::GetTenant,
                        [](v1::GetTenantRequest& r, const std::string& id) { r.set_name(id); })},
      {"GetUsage", Unary<v1::GetUsageRequest, v1::GetUsageResponse>(
                       *admin_, &v1::Admin::Stub::GetUsage,
                       [](v1::GetUsageRequest& r, const std::string& id) { r.set_tenant(id); })},
      {"ListAccounts", Unary<v1::ListAccountsRequest, v1::ListAccountsResponse>(
                           *operations_, &v1::Operations::Stub::ListAccounts,
                           [](v1::ListAccountsRequest& r, const std::string& id) { r.set_tenant(id); })},
      {"ListTokens", Unary<v1::ListTokensRequest, v1::ListTokensResponse>(
                         *admin_, &v1::Admin::Stub::ListTokens,
                         [](v1::ListTokensRequest& r, const std::string& id) { r.set_tenant(id); })},
      {"CreateToken", Unary<v1::CreateTokenRequest, v1::CreateTokenResponse>(
                          *admin_, &v1::Admin::Stub::CreateToken,
                          [](v1::CreateTokenRequest& r, const std::string& id) { r.set_tenant(id); })},
      {"UpdateTenant", Unary<v1::UpdateTenantRequest, v1::UpdateTenantResponse>(
                           *admin_, &v1::Admin::Stub::UpdateTenant,
                           [](v1::UpdateTenantRequest& r, const std::string& id) { r.set_name(id); })},
      {"ReadAudit",
       [this](const std::string& id) {
         v1::ReadAuditRequest request;
         request.set_tenant(id);
         const auto context = With(bob_);
         const auto reader = admin_->ReadAudit(context.get(), request);
         v1::ReadAuditResponse records;
         EXPECT_FALSE(reader->Read(&records));
         return reader->Finish();
       }},
      {"hpvm-tenant",
       [this](const std::string& id) {
         v1::ServerInfoResponse info;
         return Info(*With(bob_, id), &info);
       }},
  };
  ExpectAlike(of_tenants, "ann", "eve");
}

// An operator reads its own tenant's part of the audit, and nothing of another's.
TEST_F(TwoTenantsTest, OperatorsReadTheirOwnAudit) {
  const std::string hash = ToHex(HashOf("x"));
  ASSERT_TRUE(PutModule(ann_, "x", hash).ok());
  ASSERT_TRUE(PutModule(bob_, "x", hash).ok());
  ASSERT_TRUE(daemon_->audit().Flush().ok());
  const auto context = With(bob_);
  const auto reader = admin_->ReadAudit(context.get(), v1::ReadAuditRequest());
  v1::ReadAuditResponse records;
  int count = 0;
  while (reader->Read(&records)) {
    for (const std::string& line : records.records()) {
      EXPECT_NE(line.find(",\"tenant\":\"bob\","), std::string::npos) << line;
      ++count;
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(count, 1);
}

TEST_F(TwoTenantsTest, HandlesAndJobs) {
  if (!HaveExecutor()) {
    GTEST_SKIP() << "hpvm-executor or hpvm-compiler is not built here";
  }
  const std::string graph = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.json");
  const std::string module = ReadFile(HPVMD_SOURCE_DIR "/examples/matmul/matmul.wasm");
  ASSERT_TRUE(PutGraph(ann_, graph, ToHex(HashOf(graph))).ok());
  ASSERT_TRUE(PutModule(ann_, module, ToHex(HashOf(module))).ok());
  v1::PrepareGraphRequest prepare;
  prepare.set_graph_sha256(ToHex(HashOf(graph)));
  v1::ModuleBinding& binding = *prepare.add_modules();
  binding.set_name("matmul");
  binding.set_sha256(ToHex(HashOf(module)));
  v1::PrepareGraphResponse prepared;
  grpc::Status status = stub_->PrepareGraph(With(ann_).get(), prepare, &prepared);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::vector<Probe> of_handles = {
      {"ReleaseGraph", Unary<v1::ReleaseGraphRequest, v1::ReleaseGraphResponse>(
                           *stub_, &v1::Hpvm::Stub::ReleaseGraph,
                           [](v1::ReleaseGraphRequest& r, const std::string& id) { r.set_handle(id); })},
      {"Run", Unary<v1::RunRequest, v1::RunResponse>(
                  *stub_, &v1::Hpvm::Stub::Run, [](v1::RunRequest& r, const std::string& id) { r.set_handle(id); })},
      {"Stream",
       [this](const std::string& id) {
         const auto context = With(bob_);
         const auto stream = stub_->Stream(context.get());
         v1::StreamRequest open;
         open.mutable_open()->set_handle(id);
         stream->Write(open);
         stream->WritesDone();
         v1::StreamResponse answer;
         EXPECT_FALSE(stream->Read(&answer));
         return stream->Finish();
       }},
      {"RunMany",
       [this](const std::string& id) {
         v1::RunManyRequest request;
         request.set_handle(id);
         request.add_items();
         const auto context = With(bob_);
         const auto reader = stub_->RunMany(context.get(), request);
         v1::RunManyResponse answer;
         EXPECT_FALSE(reader->Read(&answer));
         return reader->Finish();
       }},
      {"SubmitMany",
       [this](const std::string& id) {
         v1::SubmitManyRequest request;
         request.add_jobs()->set_handle(id);
         v1::SubmitManyResponse answer;
         EXPECT_TRUE(stub_->SubmitMany(With(bob_).get(), request, &answer).ok());
         EXPECT_EQ(answer.results_size(), 1);
         const v1::Status& error = answer.results(0).error();
         return grpc::Status(static_cast<grpc::StatusCode>(error.code()), error.message());
       }},
  };
  ExpectAlike(of_handles, prepared.handle(), "graph-00000000000000000000000000000000");
  for (const auto& [who, count] : {std::pair(ann_, 1), std::pair(bob_, 0)}) {
    v1::ListGraphsResponse graphs;
    ASSERT_TRUE(stub_->ListGraphs(With(who).get(), v1::ListGraphsRequest(), &graphs).ok());
    EXPECT_EQ(graphs.graphs_size(), count);
  }

  v1::SubmitRequest submit;
  submit.mutable_document()->set_graph_sha256(prepare.graph_sha256());
  *submit.mutable_document()->mutable_modules() = prepare.modules();
  for (const char* name : {"A", "B"}) {
    v1::InputBinding& input = *submit.add_inputs();
    input.set_name(name);
    v1::Tensor& tensor = *input.mutable_tensor();
    tensor.set_type(v1::ELEMENT_TYPE_F32);
    tensor.add_shape(2);
    tensor.add_shape(2);
    tensor.set_data(std::string(16, '\0'));
  }
  v1::SubmitResponse submitted;
  status = stub_->Submit(With(ann_).get(), submit, &submitted);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::string job = submitted.job().id();
  EXPECT_EQ(job.size(), 4u + 12u + 32u) << job;
  const std::vector<Probe> of_jobs = {
      {"GetJob",
       Unary<v1::GetJobRequest, v1::GetJobResponse>(
           *stub_, &v1::Hpvm::Stub::GetJob, [](v1::GetJobRequest& r, const std::string& id) { r.set_job_id(id); })},
      {"CancelJob", Unary<v1::CancelJobRequest, v1::CancelJobResponse>(
                        *stub_, &v1::Hpvm::Stub::CancelJob,
                        [](v1::CancelJobRequest& r, const std::string& id) { r.set_job_id(id); })},
      {"SetJobHold", Unary<v1::SetJobHoldRequest, v1::SetJobHoldResponse>(
                         *stub_, &v1::Hpvm::Stub::SetJobHold,
                         [](v1::SetJobHoldRequest& r, const std::string& id) { r.set_job_id(id); })},
      {"RetryJob",
       Unary<v1::RetryJobRequest, v1::SubmitResponse>(
           *stub_, &v1::Hpvm::Stub::RetryJob, [](v1::RetryJobRequest& r, const std::string& id) { r.set_job_id(id); })},
      {"WatchJob",
       [this](const std::string& id) {
         v1::WatchJobRequest request;
         request.set_job_id(id);
         const auto context = With(bob_);
         const auto reader = stub_->WatchJob(context.get(), request);
         v1::JobEvent event;
         EXPECT_FALSE(reader->Read(&event));
         return reader->Finish();
       }},
      {"FetchOutput",
       [this](const std::string& id) {
         v1::FetchOutputRequest request;
         request.set_job_id(id);
         request.set_name("C");
         const auto context = With(bob_);
         const auto reader = stub_->FetchOutput(context.get(), request);
         v1::FetchOutputResponse chunk;
         EXPECT_FALSE(reader->Read(&chunk));
         return reader->Finish();
       }},
      {"ExportJob",
       [this](const std::string& id) {
         v1::ExportJobRequest request;
         request.set_job_id(id);
         const auto context = With(bob_);
         const auto reader = stub_->ExportJob(context.get(), request);
         v1::ExportJobResponse chunk;
         EXPECT_FALSE(reader->Read(&chunk));
         return reader->Finish();
       }},
  };
  ExpectAlike(of_jobs, job, "job-" + std::string(44, '0'));
  // Lists contain no objects of others.
  v1::ListJobsResponse listed;
  ASSERT_TRUE(stub_->ListJobs(With(bob_).get(), v1::ListJobsRequest(), &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 0);
}

}  // namespace
}  // namespace hpvm::server
