# SPDX-License-Identifier: Apache-2.0
# objects.py N: makes, links, sorts and drops objects; prints a checksum.
import random
import sys


class Node:
    def __init__(self, key, parent):
        self.key, self.parent, self.children, self.tags = key, parent, [], {"k": key, "s": str(key)}


random.seed(11)
n = int(sys.argv[1])
nodes = [Node(0, None)]
for key in range(1, n):
    parent = nodes[random.randrange(len(nodes))]
    child = Node(key, parent)
    parent.children.append(child)
    nodes.append(child)
    if key % 50000 == 0:
        random.shuffle(nodes)
        del nodes[len(nodes) // 2 :]
words = sorted(("%x" % (node.key * 2654435761 % 2**32) for node in nodes), key=lambda word: word[::-1])
table = {word: [word * 3, len(word)] for word in words}
print(len(nodes), len(table), sum(len(node.children) for node in nodes), words[len(words) // 2])
