// SPDX-License-Identifier: Apache-2.0
// held-cpp MODE - objects of C++ with a known truth for bench/held.
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

struct Session {
    virtual ~Session() = default;
    virtual long number() const { return at; }
    long at = 0;
    std::string user = "a user with a name that is longer than short ones";
    char data[200] = {};
};

struct Person {
    std::shared_ptr<Person> friend_of;
    char data[100] = {};
};

static void rest() { usleep(20000); }

// One session in fifty is taken out of the table and not deleted.
static void sessions()
{
    std::unordered_map<long, Session *> live;
    for (long n = 0;; rest())
        for (int i = 0; i < 200; i++, n++) {
            live[n] = new Session;
            auto old = live.find(n - 20000);
            if (old == live.end())
                continue;
            if (n % 50)
                delete old->second;
            live.erase(old);
        }
}

static void cycles()
{
    for (;; rest())
        for (int i = 0; i < 20; i++) {
            auto one = std::make_shared<Person>(), two = std::make_shared<Person>();
            one->friend_of = two;
            two->friend_of = one;
        }
}

static void containers()
{
    std::map<std::string, std::vector<long>> map;
    std::list<std::string> list;
    std::deque<std::unique_ptr<Session>> queue;
    for (long n = 0;; rest())
        for (int i = 0; i < 60; i++, n++) {
            map["a key of the map with the number " + std::to_string(n % 5000)].assign(n % 50, n);
            list.push_back("a text of the list that is not short " + std::to_string(n));
            queue.push_back(std::make_unique<Session>());
            if (queue.size() > 3000)
                queue.pop_front();
        }
}

static void sessions_kept()
{
    std::map<long, std::unique_ptr<Session>> kept;
    for (long n = 0;; rest())
        for (int i = 0; i < 15; i++, n++)
            kept[n] = std::make_unique<Session>();
}

int main(int argc, char **argv)
{
    std::string mode = argc > 1 ? argv[1] : "";
    std::vector<std::string> base;
    for (int i = 0; i < 100000; i++)
        base.push_back("a text of the base that takes some bytes more than a short one " + std::to_string(i));
    std::puts("ready");
    std::fflush(stdout);
    if (mode == "sessions")
        sessions();
    if (mode == "cycles")
        cycles();
    if (mode == "containers")
        containers();
    if (mode == "sessions-kept")
        sessions_kept();
    return 2;
}
