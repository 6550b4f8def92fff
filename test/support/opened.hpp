#pragma once
// What is private in a class, for a test that has no other way to it.

namespace weir::test {

/// An explicit instantiation may name private members:
///
///     struct lock_of_pool {
///       using type = lock pool::*;
///       friend type member(lock_of_pool);
///     };
///     template struct opened<lock_of_pool, &pool::lock_>;
///     (p.*member(lock_of_pool{})).take();
template <class Name, typename Name::type Member>
struct opened {
  friend typename Name::type member(Name) { return Member; }
};

}  // namespace weir::test
