// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <map>
#include <string>
#include <vector>

int main() {
    std::map<std::string, std::vector<int>> words;
    for (int i = 0; i < 20000; i++)
        words["w" + std::to_string(i * 7919 % 1009)].push_back(i);
    size_t most = 0;
    for (const auto &[word, places] : words)
        most = std::max(most, places.size());
    std::cout << words.size() << ' ' << most << '\n';
}
