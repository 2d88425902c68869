# SPDX-License-Identifier: Apache-2.0
# words.py MEGABYTES: English-like text on standard output: a vocabulary of 20,000 made-up words, used as often as Zipf's law has it.
import random
import sys

random.seed(1)
syllables = [a + b for a in "b d f g k l m n p r s t v z ch st tr".split() for b in "a e i o u ai ou er".split()]
vocabulary = ["".join(random.choices(syllables, k=random.choice((1, 2, 2, 3, 3, 4)))) for _ in range(20000)]
weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
left = int(float(sys.argv[1]) * 1e6)
out = sys.stdout
while left > 0:
    words = random.choices(vocabulary, weights, k=random.randint(40, 120))
    sentences, line = [], []
    for word in words:
        line.append(word)
        if random.random() < 0.08:
            sentences.append(" ".join(line).capitalize() + ".")
            line = []
    text = " ".join(sentences + [" ".join(line)]) + "\n\n"
    at, folded = 0, []
    while at < len(text):
        folded.append(text[at : at + 78])
        at += 78
    text = "\n".join(folded)
    left -= len(text)
    out.write(text)
