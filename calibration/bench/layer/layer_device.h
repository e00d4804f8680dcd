// The interface of a device that computes a layer: memory, products, works, a sort, and times. The GPU's is
// in cuda/layer_device.cu, the host's in host_device.h.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "layer/product.h"
#include "layer/work.h"

namespace moesim::bench {

// Elements of activations and weights.
enum class Element { kBf16, kFloat };
inline std::size_t size_of(Element element) {
  return element == Element::kBf16 ? sizeof(Bf16) : sizeof(float);
}

// Output of a product: elements, floats, or elements added to the existing ones. Sums are always float.
enum class Into { kElements, kFloats, kAddElements };

// State of the device at this moment; empty where unknown.
using Readings = std::vector<std::pair<std::string, double>>;

// Calls may return before the work is done; `wait`, `download` and `seconds` wait for all earlier work.
class LayerDevice {
 public:
  LayerDevice() = default;
  LayerDevice(const LayerDevice&) = delete;
  LayerDevice& operator=(const LayerDevice&) = delete;
  virtual ~LayerDevice() = default;

  virtual std::string kind() const = 0;                // "cuda" or "cpu"
  virtual std::string name() const = 0;                // vendor's name
  virtual std::string clock() const = 0;               // clock source: "CUDA events"
  virtual std::vector<std::string> about() const = 0;  // versions, one fact per line
  virtual Readings readings() const = 0;
  virtual Element element() const = 0;

  // Returns at least `bytes` zeroed bytes, aligned to 16 or more.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void zero(void* memory, std::size_t bytes) = 0;

  virtual void run(const Work& work) = 0;
  virtual void product(const Product& product, Into into) = 0;
  // Independent products of elements, none empty.
  virtual void grouped(const std::vector<Product>& products) = 0;
  // Sorts keys from 0 to `values` - 1 stably: `sorted` keys, and the original index of each in `order`.
  virtual void sort(const int* keys, int* sorted, int* order, int count, int values) = 0;

  virtual void wait() = 0;
  // Records the time when all earlier work is done. Mark numbers may be reused.
  virtual void mark(std::size_t number) = 0;
  virtual double seconds(std::size_t from, std::size_t to) = 0;
};

// Owning device memory.
class Memory {
 public:
  Memory() = default;
  Memory(LayerDevice& device, std::size_t bytes)
      : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
  Memory(Memory&& other) noexcept : device_(other.device_), data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (data_) device_->release(data_);
  }

  void* get() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  LayerDevice* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace moesim::bench
