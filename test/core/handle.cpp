#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/handle.hpp>

#include <doctest/doctest.h>

#include <type_traits>

namespace {

struct stack {  // as stacks are: immovable
  stack() = default;
  stack(stack const&) = delete;
  void* allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
  void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
};

struct stateless : stack {  // copyable, but nobody promises that copies are the same memory
  stateless() = default;
  stateless(stateless const&) : stack() {}
  stateless& operator=(stateless const&) { return *this; }
};

}  // namespace

TEST_CASE("what is copied is a handle, what stays in place is not") {
  static_assert(weir::handle<weir::resource_ref<stack>>);
  static_assert(weir::handle<weir::any_resource>);
  static_assert(weir::handle<weir::any_ref>);
  static_assert(!weir::handle<stack>);
  static_assert(!weir::handle<stateless>);
  static_assert(!weir::handle<int>);
}

TEST_CASE("a stack is held by reference, a handle by value, constant or not") {
  static_assert(std::is_same_v<weir::handle_to<stack>, weir::resource_ref<stack>>);
  static_assert(std::is_same_v<weir::handle_to<weir::resource_ref<stack>>, weir::resource_ref<stack>>);
  static_assert(std::is_same_v<weir::handle_to<weir::any_host_resource>, weir::any_host_resource>);
  static_assert(std::is_same_v<weir::handle_to<weir::any_host_resource const>, weir::any_host_resource>);
  static_assert(weir::held_by_reference<stack> && !weir::held_by_reference<weir::any_resource>);
  static_assert(!weir::held_by_reference<weir::resource_ref<stack>>);
}
