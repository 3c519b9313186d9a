// Dense arrays on the heap, of exactly the size asked for, so that a sanitizer
// sees the first element that is read or written beyond.
#ifndef TF_ECORNN_TESTS_ENGINE_ARRAY_H_
#define TF_ECORNN_TESTS_ENGINE_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace ecornn {
namespace test {

// An array with a name for messages, or an absent one, whose data() is null.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const char* name, std::vector<int64_t> shape)
      : name_(name), shape_(std::move(shape)), size_(1) {
    for (int64_t extent : shape_) size_ *= extent;
    data_.reset(new T[size_]);
  }
  // All zero.
  static Array Zeros(const char* name, std::vector<int64_t> shape) {
    Array array(name, std::move(shape));
    array.FillBytes(0);
    return array;
  }

  Array(const Array& other)
      : name_(other.name_), shape_(other.shape_), size_(other.size_) {
    if (!other.present()) return;
    data_.reset(new T[size_]);
    std::memcpy(data_.get(), other.data_.get(), size_ * sizeof(T));
  }
  Array(Array&&) = default;
  Array& operator=(Array other) {
    name_ = other.name_;
    shape_ = std::move(other.shape_);
    size_ = other.size_;
    data_ = std::move(other.data_);
    return *this;
  }

  bool present() const { return data_ != nullptr; }
  const char* name() const { return name_; }
  int64_t size() const { return size_; }
  int64_t extent(int axis) const { return shape_[axis]; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

  // Bytes of ones make a NaN of any floating-point type.
  void FillBytes(unsigned char byte) {
    std::memset(data_.get(), byte, size_ * sizeof(T));
  }

  // Entries [first, first + count) of the first axis; absent stays absent.
  Array Rows(int64_t first, int64_t count) const {
    if (!present()) return {};
    std::vector<int64_t> shape = shape_;
    shape[0] = count;
    Array rows(name_, shape);
    const int64_t stride = shape_[0] == 0 ? 0 : size_ / shape_[0];
    std::memcpy(rows.data(), data() + first * stride, rows.size() * sizeof(T));
    return rows;
  }

  template <class U>
  Array<U> As() const {
    if (!present()) return {};
    Array<U> converted(name_, shape_);
    for (int64_t i = 0; i < size_; ++i) converted[i] = static_cast<U>(data_[i]);
    return converted;
  }

  // "outputs[1,0,7]" for the element at a flat index.
  std::string Element(int64_t flat) const {
    std::string indices;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      indices = std::to_string(flat % shape_[axis]) +
                (indices.empty() ? "" : ",") + indices;
      flat /= shape_[axis];
    }
    return std::string(name_) + "[" + indices + "]";
  }

 private:
  const char* name_ = "";
  std::vector<int64_t> shape_;
  int64_t size_ = 0;
  std::unique_ptr<T[]> data_;
};

// The engine's working memory: 64-byte aligned, filled with one byte.
class Scratch {
 public:
  Scratch(size_t bytes, unsigned char byte)
      : data_(::operator new(bytes, kAlignment)) {
    std::memset(data_, byte, bytes);
  }
  ~Scratch() { ::operator delete(data_, kAlignment); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void* data_;
};

}  // namespace test
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_ENGINE_ARRAY_H_
