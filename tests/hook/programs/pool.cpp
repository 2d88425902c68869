// SPDX-License-Identifier: Apache-2.0
// libstdc++: the emergency pool before the constructors, exceptions, bad_alloc, sized and aligned delete, thread_local.
#include <iostream>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct alignas(256) Wide {
    char bytes[512];
};

struct Late {
    std::string *text = new std::string(1000, 'x');
    ~Late() {
        delete text;
        std::vector<int> more(10000, 1); // allocation in a destructor of thread storage
        text = nullptr;
    }
};
thread_local Late late;

static std::map<int, std::string> global_map{{1, "one"}, {2, "two"}};

int main() {
    try {
        throw std::runtime_error("thrown " + std::string(100, 'y'));
    } catch (const std::exception &error) {
        std::cout << error.what() << '\n';
    }
    try {
        std::vector<char> huge(static_cast<size_t>(-1) / 4);
        std::cout << huge.size() << '\n';
    } catch (const std::bad_alloc &) {
        std::cout << "bad_alloc\n";
    }
    auto *wide = new Wide[3];
    std::cout << reinterpret_cast<size_t>(wide) % 256 << '\n';
    delete[] wide;
    for (int i = 0; i < 200; i++)
        std::thread([] { late.text->push_back('z'); }).join();
    std::cout << global_map[2] << late.text->size() << '\n';
}
