// SPDX-License-Identifier: Apache-2.0
// A C++ compilation of the usual kind: few lines of one's own, many of the library.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

int main() {
    std::regex word("[a-z]+");
    std::map<std::string, std::unique_ptr<int>> seen;
    std::unordered_map<int, std::vector<std::string>> by_length;
    for (std::string line; std::getline(std::cin, line);)
        for (std::sregex_iterator at(line.begin(), line.end(), word), end; at != end; ++at)
            by_length[static_cast<int>(at->str().size())].push_back(at->str());
    for (auto &[length, words] : by_length)
        std::sort(words.begin(), words.end());
    std::cout << by_length.size() << seen.size() << '\n';
}
