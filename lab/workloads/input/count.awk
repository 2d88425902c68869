# SPDX-License-Identifier: Apache-2.0
# count.awk: counts words and pairs; prints the most frequent ones of ten letters.
{
    for (i = 1; i <= NF; i++) {
        word = tolower($i); gsub(/[^a-z]/, "", word)
        count[word]++
        if (length(last) > 7) pair[last " " word]++
        last = word
    }
}
END {
    for (word in count) { words++; if (length(word) == 10 && count[word] > best) best = count[word] }
    for (p in pair) pairs++
    print words, pairs, best
}
