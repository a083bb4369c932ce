// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/bridge/declarations.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/Attr.h>
#include <clang/AST/Decl.h>
#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/AST/Stmt.h>

#include <string>

namespace hpvm::opencl {
namespace {

class Visitor : public clang::RecursiveASTVisitor<Visitor> {
 public:
  Visitor(clang::ASTContext& context, const hpvm_opencl_listener& listener) : context_(context), listener_(listener) {}

  bool VisitFunctionDecl(clang::FunctionDecl* function) {
    if (function->hasAttr<clang::DeviceKernelAttr>() && function->isThisDeclarationADefinition()) {
      TellKernel(*function);
    }
    return true;
  }

  // Skips parameters and variables of incomplete type.
  bool VisitVarDecl(clang::VarDecl* variable) {
    if (llvm::isa<clang::ParmVarDecl>(variable) || variable->isInvalidDecl() ||
        variable->getType()->isIncompleteType() || variable->getType()->isDependentType()) {
      return true;
    }
    const std::string name = variable->getNameAsString();
    const auto* function = llvm::dyn_cast_or_null<clang::FunctionDecl>(variable->getParentFunctionOrMethod());
    const std::string owner = function == nullptr ? "" : function->getNameAsString();
    hpvm_opencl_variable told;
    told.space = SpaceOf(variable->getType().getAddressSpace());
    told.bytes = static_cast<uint64_t>(context_.getTypeSizeInChars(variable->getType()).getQuantity());
    told.name = name.c_str();
    told.function = owner.c_str();
    told.place = PlaceOf(variable->getLocation(), context_.getSourceManager());
    listener_.variable(listener_.context, &told);
    return true;
  }

  bool VisitAsmStmt(clang::AsmStmt* statement) {
    return Refuse(statement->getAsmLoc(), "inline assembly is not accepted");
  }
  bool VisitFileScopeAsmDecl(clang::FileScopeAsmDecl* declaration) {
    return Refuse(declaration->getAsmLoc(), "inline assembly is not accepted");
  }
  bool VisitAsmLabelDeclaration(clang::Decl* declaration) {
    return !declaration->hasAttr<clang::AsmLabelAttr>() ||
           Refuse(declaration->getLocation(), "inline assembly is not accepted");
  }
  bool VisitNamedDecl(clang::NamedDecl* declaration) { return VisitAsmLabelDeclaration(declaration); }
  bool VisitDeclRefExpr(clang::DeclRefExpr* reference) {
    const clang::IdentifierInfo* name = reference->getDecl()->getIdentifier();
    return name == nullptr || name->getName() != "printf" ||
           Refuse(reference->getLocation(), "\"printf\" is refused: modules that are native to a device may not print");
  }

 private:
  bool Refuse(clang::SourceLocation location, const char* message) {
    listener_.fault(listener_.context, PlaceOf(location, context_.getSourceManager()), message);
    return true;
  }

  static hpvm_opencl_space SpaceOf(clang::LangAS space) {
    return space == clang::LangAS::opencl_local      ? HPVM_OPENCL_IN_LOCAL
           : space == clang::LangAS::opencl_constant ? HPVM_OPENCL_IN_CONSTANT
           : space == clang::LangAS::opencl_global   ? HPVM_OPENCL_IN_CONSTANT
                                                     : HPVM_OPENCL_IN_PRIVATE;
  }

  void TellKernel(clang::FunctionDecl& function) {
    uint32_t group[3] = {0, 0, 0};
    if (const auto* required = function.getAttr<clang::ReqdWorkGroupSizeAttr>(); required != nullptr) {
      const clang::Expr* extents[3] = {required->getXDim(), required->getYDim(), required->getZDim()};
      for (int i = 0; i < 3; ++i) {
        const auto value = extents[i]->getIntegerConstantExpr(context_);
        group[i] = value.has_value() ? static_cast<uint32_t>(value->getLimitedValue(~0u)) : 0;
      }
    }
    const std::string name = function.getNameAsString();
    listener_.kernel(listener_.context, name.c_str(), PlaceOf(function.getLocation(), context_.getSourceManager()),
                     group);
    for (const clang::ParmVarDecl* parameter : function.parameters()) {
      TellParameter(*parameter);
    }
  }

  void TellParameter(const clang::ParmVarDecl& parameter) {
    hpvm_opencl_parameter told = {};
    const clang::QualType type = parameter.getType().getCanonicalType();
    Classify(type, told);
    const std::string written = NameOf(parameter.getType()), meant = NameOf(type);
    const std::string text = written == meant ? written : written + " (that is, " + meant + ")";
    told.text = text.c_str();
    told.place = PlaceOf(parameter.getLocation(), context_.getSourceManager());
    listener_.parameter(listener_.context, &told);
  }

  // Returns the name without the address space of the parameter itself; vectors get their OpenCL names.
  std::string NameOf(clang::QualType type) const {
    type = context_.removeAddrSpaceQualType(type.getUnqualifiedType());
    if (const auto* vector = llvm::dyn_cast<clang::VectorType>(type.getTypePtr()); vector != nullptr) {
      return NameOf(vector->getElementType()) + std::to_string(vector->getNumElements());
    }
    return type.getAsString(context_.getPrintingPolicy());
  }

  void Classify(clang::QualType type, hpvm_opencl_parameter& told) const {
    told.kind = HPVM_OPENCL_OTHER;
    if (const auto* pointer = type->getAs<clang::PointerType>(); pointer != nullptr) {
      const clang::QualType target = pointer->getPointeeType();
      const clang::LangAS space = target.getAddressSpace();
      const bool is_constant = space == clang::LangAS::opencl_constant;
      told.is_const = is_constant || target.isConstQualified();
      told.kind = is_constant || space == clang::LangAS::opencl_global ? HPVM_OPENCL_GLOBAL
                  : space == clang::LangAS::opencl_local               ? HPVM_OPENCL_LOCAL
                                                                       : HPVM_OPENCL_OTHER;
    } else if (type->isVectorType()) {
      told.kind = HPVM_OPENCL_VECTOR;
    } else if (type->isRecordType()) {
      told.kind = HPVM_OPENCL_RECORD;
    } else if (type->isOpenCLSpecificType()) {
      told.kind = HPVM_OPENCL_OPAQUE;
    } else if (type->isBooleanType()) {
      told.kind = HPVM_OPENCL_OTHER;
    } else if (type->isIntegerType() || type->isRealFloatingType()) {
      told.kind = type->isIntegerType() ? HPVM_OPENCL_INTEGER : HPVM_OPENCL_FLOAT;
      told.bits = static_cast<uint32_t>(context_.getTypeSize(type));
    }
  }

  clang::ASTContext& context_;
  const hpvm_opencl_listener& listener_;
};

class Consumer : public clang::ASTConsumer {
 public:
  explicit Consumer(const hpvm_opencl_listener& listener) : listener_(listener) {}

  void HandleTranslationUnit(clang::ASTContext& context) override {
    if (!context.getDiagnostics().hasErrorOccurred()) {
      Visitor(context, listener_).TraverseDecl(context.getTranslationUnitDecl());
    }
  }

 private:
  const hpvm_opencl_listener& listener_;
};

}  // namespace

hpvm_opencl_place PlaceOf(clang::SourceLocation location, const clang::SourceManager& sources) {
  const clang::PresumedLoc place = location.isValid() ? sources.getPresumedLoc(location) : clang::PresumedLoc();
  return place.isValid() ? hpvm_opencl_place{place.getLine(), place.getColumn()} : hpvm_opencl_place{0, 0};
}

std::unique_ptr<clang::ASTConsumer> ListDeclarations(const hpvm_opencl_listener& listener) {
  return std::make_unique<Consumer>(listener);
}

}  // namespace hpvm::opencl
