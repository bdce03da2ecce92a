// A second device for machines without one: memory and arithmetic are the CPU's, the rules CUDA's.
//
// Tensors of two devices do not meet (but for numbers, and indices), a generator draws for its own
// device only, and NumPy cannot read a tensor.
// Python's side is second.py, which says how to compile and load this.

#include <ATen/ATen.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace {

using at::Tensor;
using c10::DeviceType;
constexpr DeviceType kSecond = DeviceType::PrivateUse1;
const c10::Device kDevice(kSecond, 0);
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// ---- memory and device -------------------------------------------------------------------------

void free_memory(void* memory) { c10::free_cpu(memory); }

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = c10::alloc_cpu(std::max<size_t>(bytes, 1));
    return {memory, memory, &free_memory, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

Memory memory;
REGISTER_ALLOCATOR(kSecond, &memory);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kSecond> {
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int = 0) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  // All is done in order, so that there is nothing to wait for.
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag)
      const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }

 private:
  static c10::Stream stream() noexcept { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- random numbers ----------------------------------------------------------------------------

struct SecondGenerator final : c10::GeneratorImpl {
  at::Generator inner;  // of the CPU, with a stream of its own

  explicit SecondGenerator(at::Generator inner)
      : GeneratorImpl(kDevice, kKeys), inner(std::move(inner)) {}
  void set_current_seed(uint64_t seed) override { inner.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { inner.set_offset(offset); }
  uint64_t get_offset() const override { return inner.get_offset(); }
  uint64_t current_seed() const override { return inner.current_seed(); }
  uint64_t seed() override { return inner.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    inner.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return inner.unsafeGetGeneratorImpl()->get_state();
  }
  SecondGenerator* clone_impl() const override { return new SecondGenerator(inner.clone()); }
};

at::Generator new_generator() {
  return at::make_generator<SecondGenerator>(at::detail::createCPUGenerator());
}

const at::Generator& default_generator() {
  static at::Generator generator = new_generator();
  return generator;
}

at::Generator of_cpu(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == kSecond,
      "Expected a 'second' device type for generator but found '", generator.device(), "'");
  return static_cast<SecondGenerator*>(generator.unsafeGetGeneratorImpl())->inner;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto data = memory.allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept) std::memcpy(data.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// ---- tensors from one device to the other ------------------------------------------------------

Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &memory, kKeys, c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
Tensor as_cpu(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  if (tensor.is_sparse()) {
    auto found = at::_sparse_coo_tensor_unsafe(
        as_cpu(tensor._indices()), as_cpu(tensor._values()), tensor.sizes());
    return found._coalesced_(tensor.is_coalesced());
  }
  auto options = tensor.options().device(c10::kCPU).requires_grad(false);
  if (!tensor.numel()) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  Tensor found = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
  if (tensor.is_conj()) found = found.conj();
  if (tensor.is_neg()) found = found._neg_view();
  return found;
}

Tensor to_second(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_sparse()) {
    auto found = at::_sparse_coo_tensor_unsafe(
        to_second(tensor._indices()), to_second(tensor._values()), tensor.sizes());
    return found._coalesced_(tensor.is_coalesced());
  }
  auto found = empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), {}, {}, {});
  as_cpu(found).copy_(tensor);
  return found;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool /*non_blocking*/) {
  as_cpu(to).copy_(as_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& tensor) { return as_cpu(tensor).item(); }

const Tensor& resize(
    const Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  const bool grows = at::detail::computeStorageNbytesContiguous(
                         size, self.dtype().itemsize(), self.storage_offset()) >
      self.storage().nbytes();
  if (grows) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
        self.storage(),
        at::detail::computeStorageNbytesContiguous(
            size, self.dtype().itemsize(), self.storage_offset()));
  }
  impl->set_sizes_contiguous(size);
  return self;
}

Tensor& set_source_storage(Tensor& self, at::Storage source) {
  const int64_t size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_storage_offset(0);
  self.unsafeGetTensorImpl()->set_sizes_contiguous({size});
  return self;
}

Tensor& set_source_storage_offset(
    Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) impl->set_sizes_contiguous(size);
  else impl->set_sizes_and_strides(size, stride);
  return self;
}

// ---- every other operation ---------------------------------------------------------------------

const std::set<std::string> kIndexing{
    "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put",
    "aten::_unsafe_index", "aten::_unsafe_index_put"};
// Elsewhere CUDA takes a number of the CPU; not here.
const std::set<std::string> kStrict{
    "aten::cat", "aten::stack", "aten::gather", "aten::scatter", "aten::scatter_",
    "aten::scatter_add_", "aten::index_select", "aten::index_add_", "aten::index_copy_",
    "aten::dot", "aten::searchsorted", "aten::bucketize"};

void check_devices(const std::string& name, const std::vector<Tensor>& tensors) {
  const bool indexing = kIndexing.count(name), strict = kStrict.count(name);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (!tensor.defined() || tensor.device().type() == kSecond) continue;
    if (indexing && i > 0 && tensor.is_cpu()) continue;
    TORCH_CHECK(
        tensor.is_cpu() && tensor.dim() == 0 && !strict,
        "Expected all tensors to be on the same device, but found at least two devices, second:0 "
        "and ", tensor.device(), " (", name, ", argument of shape ", tensor.sizes(), ").");
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  const size_t count = schema.arguments().size(), begin = stack->size() - count;
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    TORCH_CHECK_NOT_IMPLEMENTED(
        !alias || alias->isWrite(), "second.cpp has no kernel of the view ", name, ".");
  }
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    const auto& value = (*stack)[begin + i];
    if (value.isTensor()) tensors.push_back(value.toTensor());
    else if (value.isTensorList()) for (const Tensor& t : value.toTensorVector()) tensors.push_back(t);
    else if (value.isOptionalTensorList())
      for (const std::optional<Tensor>& t : value.toOptionalTensorVector())
        tensors.push_back(t ? *t : Tensor());
  }
  check_devices(name, tensors);
  const bool sparse = std::any_of(
      tensors.begin(), tensors.end(), [](const Tensor& t) { return t.defined() && t.is_sparse(); });

  std::vector<std::pair<Tensor, Tensor>> written;  // of this device, and what the CPU wrote
  auto lend = [&written](const Tensor& tensor, bool writes) {
    if (!tensor.defined() || tensor.is_cpu()) return tensor;
    if (!writes) return as_cpu(tensor);
    Tensor copy = as_cpu(tensor).clone();
    written.emplace_back(tensor, copy);
    return copy;
  };
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[begin + i];
    const auto& argument = schema.arguments()[i];
    const bool writes = argument.alias_info() && argument.alias_info()->isWrite();
    if (value.isTensor()) {
      value = lend(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(lend(tensor, writes));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional<Tensor>(lend(*tensor, writes)) : std::nullopt);
      value = list;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator()) {
      value = of_cpu(value.toGenerator());
    } else if (argument.type()->kind() == c10::TypeKind::OptionalType && value.isNone() &&
               argument.name() == "generator") {
      value = of_cpu(default_generator());
    }
  }

  if (sparse) op.callBoxed(stack);
  else op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);

  for (auto& [tensor, copy] : written) {
    if (tensor.sizes() != copy.sizes()) tensor.resize_(copy.sizes());
    as_cpu(tensor).copy_(copy);
  }
  auto back = [&written](const Tensor& tensor) {
    for (auto& [original, copy] : written)
      if (tensor.is_same(copy)) return original;
    return to_second(tensor);
  };
  const size_t results = schema.returns().size(), first = stack->size() - results;
  for (size_t i = 0; i < results; ++i) {
    auto& value = (*stack)[first + i];
    if (value.isTensor()) {
      value = back(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(back(tensor));
      value = list;
    }
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         &at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("_indices", &at::native::_indices_sparse);
  m.impl("_values", &at::native::_values_sparse);
  m.impl("_coalesced_", &at::native::_coalesced_sparse_);
  m.impl("is_coalesced", &at::native::is_coalesced_sparse);
  m.impl("sparse_dim", &at::native::sparse_dim_sparse);
  m.impl("dense_dim", &at::native::dense_dim_sparse);
  m.impl("_nnz", &at::native::_nnz_sparse);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage", &set_source_storage);
  m.impl("set_.source_Storage_storage_offset", &set_source_storage_offset);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

// A copy reads conjugated and negated tensors as they are; without this it would call itself.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY(gpytorch_nkn_second, m) {
  m.def("seed(int seed) -> ()", [](int64_t seed) {
    of_cpu(default_generator()).set_current_seed(static_cast<uint64_t>(seed));
  });
  m.def("rng_state() -> Tensor", [] { return of_cpu(default_generator()).get_state(); });
  m.def("set_rng_state(Tensor state) -> ()", [](const Tensor& state) {
    of_cpu(default_generator()).set_state(state);
  });
}

static int registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return 0;
}();
