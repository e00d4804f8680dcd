// Arrays on the GPU with a value for each product, as both generations' kernels read them.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/cutlass.h>

#include <vector>

#include "cutlass_grouped.h"

namespace moesim::bench {

inline void require(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess) fail(what, cutlass::cutlassGetStatusString(status));
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : buffer_(values.size() * sizeof(T)) {
    require(cudaMemcpy(buffer_.as<void>(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "sizes of grouped products");
  }
  T* get() const { return buffer_.as<T>(); }

 private:
  Buffer buffer_;
};

template <class Value>
auto of_each(const std::vector<Product>& products, const Value& value) {
  std::vector<decltype(value(products.front()))> values;
  values.reserve(products.size());
  for (const Product& one : products) values.push_back(value(one));
  return values;
}

using Bf16 = cutlass::bfloat16_t;
inline Bf16* element(const void* at) { return static_cast<Bf16*>(const_cast<void*>(at)); }

}  // namespace moesim::bench
