// SPDX-License-Identifier: Apache-2.0
// C++ programs that hold memory for a known reason: held MODE. Each writes "ready" and then goes on until it is killed.
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace app {

struct Session {
	explicit Session(std::string name) : user(std::move(name)) {}
	virtual ~Session() = default;
	std::string user;
	char data[200] = {};
};

struct First {
	virtual ~First() = default;
	long first = 0;
};

struct Second {
	virtual ~Second() = default;
	long second = 0;
};

// Only a pointer to its second part is kept.
struct Both : First, Second {};

struct Ring {
	std::shared_ptr<Ring> other;
	char data[100] = {};
};

} // namespace app

static void pause_us(unsigned time) { usleep(time); }

// Sessions come and go; one in `forgotten` is not deleted, if that is not 0.
static void sessions(long forgotten)
{
	std::unordered_map<std::string, app::Session *> live;
	std::list<std::string> order;
	for (long number = 0;; number++) {
		auto name = "user-session-key-number-" + std::to_string(number);
		live[name] = new app::Session(name);
		order.push_back(name);
		if (order.size() > 20000) {
			auto oldest = live.find(order.front());
			if (!forgotten || number % forgotten != 0)
				delete oldest->second;
			live.erase(oldest);
			order.pop_front();
			if (number % 300 == 0)
				pause_us(5000);
		}
	}
}

int main(int count, char **words)
{
	const std::string mode = count > 1 ? words[1] : "";
	std::map<std::string, std::vector<long>> index;
	std::vector<app::Second *> seconds;
	std::unordered_map<long, std::string> cache;
	std::vector<app::Session *> kept;
	for (long at = 0; at < 100000; at++)
		index[std::to_string(at * 7919)].resize(at % 20);
	if (mode == "second")
		for (int at = 0; at < 200000; at++)
			seconds.push_back(new app::Both);
	puts("ready");
	fflush(stdout);
	if (mode == "leak")
		sessions(20);
	if (mode == "sessions")
		sessions(0);
	for (long at = 0; mode == "ring"; at++) {
		auto one = std::make_shared<app::Ring>();
		one->other = std::make_shared<app::Ring>();
		one->other->other = one;
		if (at % 100 == 0)
			pause_us(20000);
	}
	for (long at = 0; mode == "cache"; at++) {
		cache[at] = std::string(200, 'x');
		if (at % 100 == 0)
			pause_us(10000);
	}
	for (long at = 0; mode == "objects"; at++) {
		kept.push_back(new app::Session("kept"));
		if (at % 100 == 0)
			pause_us(20000);
	}
	for (;;)
		pause();
}
