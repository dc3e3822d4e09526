// Who may stay connected without having shown anything.
#include "transport/base/connection_book.hpp"

#include "tests/catch.hpp"

namespace of_connection_book_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart{1h};

}  // namespace

TEST_CASE("connections: a stranger too many closes the oldest of the address that has most") {
  ConnectionBook book(4, 10s);
  CHECK_FALSE(book.accepted(1, "flood", kStart));
  CHECK_FALSE(book.accepted(2, "peer", kStart + 1s));
  CHECK_FALSE(book.accepted(3, "flood", kStart + 2s));
  CHECK_FALSE(book.accepted(4, "flood", kStart + 3s));
  CHECK(book.strangers() == 4);
  CHECK(book.accepted(5, "flood", kStart + 4s) == 1);
  CHECK(book.accepted(6, "another", kStart + 4s) == 3);  // not the peer, which has been there longer
  CHECK(book.strangers() == 4);
  // Proven ones do not count, and are never closed.
  book.prove(2);
  book.prove(2);
  CHECK(book.strangers() == 3);
  CHECK_FALSE(book.accepted(7, "flood", kStart + 5s));
  CHECK(book.accepted(8, "peer", kStart + 5s) == 4);
}

TEST_CASE("connections: who proves nothing in time is closed, and who turns out to have proven nothing has as long again") {
  ConnectionBook book(4, 10s);
  book.accepted(1, "a", kStart);
  book.accepted(2, "a", kStart + 3s);
  book.prove(1);
  CHECK(book.next_deadline() == kStart + 13s);
  CHECK(book.take_expired(kStart + 12s).empty());
  CHECK(book.take_expired(kStart + 13s) == std::vector<int>{2});
  CHECK(book.take_expired(kStart + 100s).empty());
  CHECK_FALSE(book.next_deadline());
  book.doubt(1, kStart + 100s);
  book.doubt(1, kStart + 105s);  // it was doubted before: nothing is won
  CHECK(book.take_expired(kStart + 109s).empty());
  CHECK(book.take_expired(kStart + 110s) == std::vector<int>{1});
  CHECK(book.strangers() == 0);
}

TEST_CASE("connections: one that ended is out of the book, and its number may be used again") {
  ConnectionBook book(2, 10s);
  book.accepted(1, "a", kStart);
  book.gone(1);
  book.gone(1);
  book.prove(1);
  CHECK(book.strangers() == 0);
  book.accepted(1, "a", kStart + 20s);
  book.prove(1);
  book.accepted(1, "b", kStart + 30s);  // its end went unnoticed
  CHECK(book.strangers() == 1);
  CHECK(book.take_expired(kStart + 40s) == std::vector<int>{1});
}

}  // namespace of_connection_book_test
