#include <weir/pool/question_interval.hpp>

#include <doctest/doctest.h>

using weir::detail::question_interval;

namespace {

/// Looks in vain until it is time for a question.
unsigned looks_until_due(question_interval& questions) {
  unsigned looks = 1;
  while (!questions.is_due_after_look(false)) ++looks;
  return looks;
}
/// A question that gave a block, which was the first of so many.
void answer(question_interval& questions, unsigned found) {
  questions.answered(true);
  for (unsigned i = 0; i < found; ++i) CHECK_FALSE(questions.is_due_after_look(true));
}

}  // namespace

TEST_CASE("a question comes seldom, as long as none gave anything") {
  question_interval questions;
  CHECK(looks_until_due(questions) == question_interval::seldom);
  questions.answered(false);
  CHECK(looks_until_due(questions) == question_interval::seldom);
}

TEST_CASE("it comes often while questions give much, and each time half as often where they give little") {
  question_interval questions;
  answer(questions, question_interval::much);
  CHECK(looks_until_due(questions) == question_interval::seldom);  // what the first gave nobody knew then
  answer(questions, question_interval::much);
  CHECK(looks_until_due(questions) == question_interval::often);
  answer(questions, question_interval::much - 1);
  CHECK(looks_until_due(questions) == question_interval::often);
  for (unsigned interval = 2 * question_interval::often; interval < question_interval::seldom; interval *= 2) {
    answer(questions, 0);
    CHECK(looks_until_due(questions) == interval);
  }
  answer(questions, 0);
  CHECK(looks_until_due(questions) == question_interval::seldom);
  answer(questions, 0);
  CHECK(looks_until_due(questions) == question_interval::seldom);
}

TEST_CASE("while streams are at work, so that a question gives nothing, the next one is far") {
  question_interval questions;
  answer(questions, question_interval::much);
  answer(questions, 0);
  REQUIRE(looks_until_due(questions) == question_interval::often);
  questions.answered(false);
  CHECK(looks_until_due(questions) == question_interval::seldom);
}

TEST_CASE("looks that find something do not bring the next question nearer") {
  question_interval questions;
  for (unsigned i = 0; i < 10 * question_interval::seldom; ++i) CHECK_FALSE(questions.is_due_after_look(true));
  CHECK(looks_until_due(questions) == question_interval::seldom);
}
