// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

std::map<std::string, std::vector<int>> counts(const std::vector<std::string> &words) {
    std::map<std::string, std::vector<int>> found;
    for (const auto &word : words)
        if (std::regex_match(word, std::regex("[a-z]+")))
            found[word].push_back(static_cast<int>(word.size()));
    for (auto &[word, lengths] : found)
        std::sort(lengths.begin(), lengths.end(), [](int a, int b) { return a > b; });
    return found;
}
