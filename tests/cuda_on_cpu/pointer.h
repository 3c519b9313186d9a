// Pointers that know their bounds and tell the emulation of each access.
#ifndef TF_ECORNN_TESTS_CUDA_ON_CPU_POINTER_H_
#define TF_ECORNN_TESTS_CUDA_ON_CPU_POINTER_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "memory.h"

namespace ecornn {
namespace emulation {

template <class T>
class Pointer;

// What Pointer<T> and Pointer<const T> share.
class AnyPointer {
 public:
  AnyPointer() = default;
  AnyPointer(const Extent& extent, unsigned char* address)
      : extent_(extent), address_(address) {}
  const Extent& extent() const { return extent_; }
  unsigned char* address() const { return address_; }
  explicit operator bool() const { return address_ != nullptr; }

  friend bool operator==(const AnyPointer& a, const AnyPointer& b) {
    return a.address_ == b.address_;
  }
  friend bool operator!=(const AnyPointer& a, const AnyPointer& b) {
    return a.address_ != b.address_;
  }
  friend bool operator==(const AnyPointer& a, decltype(nullptr)) {
    return a.address_ == nullptr;
  }
  friend bool operator!=(const AnyPointer& a, decltype(nullptr)) {
    return a.address_ != nullptr;
  }

 protected:
  Extent extent_;
  unsigned char* address_ = nullptr;
};

// Arithmetic may lead anywhere; only accesses are checked.
#define ECORNN_EMULATION_POINTER_ARITHMETIC(T)                            \
  Pointer operator+(int64_t n) const {                                    \
    return {extent_, address_ + n * static_cast<int64_t>(sizeof(T))};     \
  }                                                                       \
  friend Pointer operator+(int64_t n, const Pointer& p) { return p + n; } \
  Pointer operator-(int64_t n) const { return *this + -n; }               \
  Pointer& operator+=(int64_t n) { return *this = *this + n; }            \
  Pointer& operator-=(int64_t n) { return *this = *this + -n; }           \
  Pointer& operator++() { return *this += 1; }                            \
  Pointer& operator--() { return *this -= 1; }                            \
  Pointer operator++(int) {                                               \
    const Pointer before = *this;                                         \
    ++*this;                                                              \
    return before;                                                        \
  }                                                                       \
  Pointer operator--(int) {                                               \
    const Pointer before = *this;                                         \
    --*this;                                                              \
    return before;                                                        \
  }

template <class T>
T ReadElement(const AnyPointer& p) {
  static_assert(std::is_trivially_copyable<T>::value, "copied as bytes");
  NoteRead(p.extent(), p.address(), sizeof(T), sizeof(T), Self(),
           Through::kOwnCache);
  T value;
  memcpy(static_cast<void*>(&value), p.address(), sizeof(T));
  return value;
}

template <class T>
void WriteElement(const AnyPointer& p, const T& value) {
  NoteWrite(p.extent(), p.address(), sizeof(T), sizeof(T), Self());
  memcpy(p.address(), static_cast<const void*>(&value), sizeof(T));
}

// An element of memory that may be written.
template <class T>
class Reference {
 public:
  explicit Reference(const AnyPointer& p) : pointer_(p) {}
  Reference(const Reference&) = default;
  operator T() const { return ReadElement<T>(pointer_); }
  Reference& operator=(const T& value) {
    WriteElement<T>(pointer_, value);
    return *this;
  }
  Reference& operator=(const Reference& other) { return *this = T(other); }
  template <class V>
  Reference& operator+=(const V& value) {
    return *this = T(*this) + value;
  }
  template <class V>
  Reference& operator-=(const V& value) {
    return *this = T(*this) - value;
  }
  template <class V>
  Reference& operator*=(const V& value) {
    return *this = T(*this) * value;
  }

 private:
  AnyPointer pointer_;
};

template <class T>
class Pointer<const T> : public AnyPointer {
 public:
  using AnyPointer::AnyPointer;
  Pointer() = default;
  Pointer(decltype(nullptr)) {}
  T operator[](int64_t i) const { return ReadElement<T>(*this + i); }
  T operator*() const { return ReadElement<T>(*this); }
  int64_t operator-(const Pointer& other) const {
    return (address_ - other.address_) / static_cast<int64_t>(sizeof(T));
  }
  ECORNN_EMULATION_POINTER_ARITHMETIC(T)
};

// Derived, so that templates that take Pointer<const T> take this as well, just
// as they would a plain pointer.
template <class T>
class Pointer : public Pointer<const T> {
 public:
  using Pointer<const T>::Pointer;
  Pointer() = default;
  Reference<T> operator[](int64_t i) const { return Reference<T>(*this + i); }
  Reference<T> operator*() const { return Reference<T>(*this); }
  int64_t operator-(const Pointer<const T>& other) const {
    return (address_ - other.address()) / static_cast<int64_t>(sizeof(T));
  }
  ECORNN_EMULATION_POINTER_ARITHMETIC(T)

 private:
  using AnyPointer::address_;
  using AnyPointer::extent_;
};

#undef ECORNN_EMULATION_POINTER_ARITHMETIC

template <class T>
Pointer<T> MakeGlobal(T* data, int64_t count) {
  using Plain = std::remove_const_t<T>;
  auto* begin = reinterpret_cast<unsigned char*>(const_cast<Plain*>(data));
  const Extent extent{begin, count * static_cast<int64_t>(sizeof(T)), false};
  CheckGlobalExtent(extent);
  return {extent, begin};
}

template <class T>
Pointer<T> MakeShared(size_t offset, int64_t count) {
  const Block& block = *current_thread->block;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  if (count < 0 || offset % 16 != 0 || offset + bytes > block.shared_bytes) {
    Fail(
        "takes %lld bytes of shared memory from %zu on; the block has %zu, and "
        "offsets are multiples of 16",
        static_cast<long long>(bytes), offset, block.shared_bytes);
  }
  unsigned char* begin = block.shared_begin + offset;
  return {Extent{begin, bytes, true}, begin};
}

template <class To, class From>
Pointer<To> Reinterpret(const Pointer<From>& from) {
  static_assert(sizeof(To) == sizeof(From), "elements of one size");
  static_assert(std::is_const<To>::value || !std::is_const<From>::value,
                "what may not be written stays so");
  return {from.extent(), from.address()};
}

inline void CheckAligned(const AnyPointer& p, int alignment, const char* what) {
  if (reinterpret_cast<uintptr_t>(p.address()) % alignment != 0) {
    FailMisaligned(p.address(), alignment, what);
  }
}

template <class V, class T>
V ReadVector(const Pointer<const T>& from, Through through) {
  CheckAligned(from, sizeof(V), "reads a vector from");
  NoteRead(from.extent(), from.address(), sizeof(V), sizeof(T), Self(),
           through);
  V value;
  memcpy(&value, from.address(), sizeof(V));
  return value;
}

template <class V, class T>
void WriteVector(const Pointer<T>& to, const V& value) {
  CheckAligned(to, sizeof(V), "writes a vector to");
  NoteWrite(to.extent(), to.address(), sizeof(V), sizeof(T), Self());
  memcpy(to.address(), &value, sizeof(V));
}

inline unsigned* CounterAt(const Pointer<unsigned>& counter) {
  CheckBounds(counter.extent(), counter.address(), sizeof(unsigned),
              sizeof(unsigned), "counts with");
  CheckAligned(counter, alignof(unsigned), "counts with");
  CheckCounter(counter.address());
  return reinterpret_cast<unsigned*>(counter.address());
}

}  // namespace emulation
}  // namespace ecornn

#endif  // TF_ECORNN_TESTS_CUDA_ON_CPU_POINTER_H_
