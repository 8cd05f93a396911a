/* SPDX-License-Identifier: MIT
 * bindings/cpp/example.cpp - one quota for requests, one for requests in
 * flight.
 *
 *     weir serve &
 *     weir quota set hello limit=3/s
 *     weir quota set db kind=concurrency limit=2
 *     c++ -std=c++17 example.cpp $(pkg-config --cflags --libs weir) &&
 * ./a.out */

#include <iostream>

#include <weir/weir.hpp>

using namespace std::chrono_literals;

int main(int argc, char **argv)
{
    weirpp::limiter limiter(argc > 1 ? argv[1] : "127.0.0.1:7077");
    /* A server would just start: without a root yet, everything passes. */
    if (!limiter.ready(2s))
        std::cout << "no root answers, so nothing is limited\n";

    weirpp::quota hello(limiter, "hello");
    weirpp::reply reply;
    if (!hello.take(1, &reply)) {
        std::cout << "limited by " << reply.quota() << ", again in "
                  << reply.retry_after().count() / 1e9 << " s\n";
        return 1;
    }
    weirpp::quota db(limiter, "db");
    if (auto permit = db.enter()) {
        std::cout << "passed\n";
        return 0; /* the permit is left here */
    }
    std::cout << "too much in flight\n";
    return 1;
}
