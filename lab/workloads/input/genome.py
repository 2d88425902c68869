# SPDX-License-Identifier: Apache-2.0
# genome.py KILOBASES genome|reads|proteins|family [COUNT]: made-up sequences; reads are cut from the same genome, with errors.
import random
import sys

kilobases, what = int(sys.argv[1]), sys.argv[2]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
random.seed(6)
repeat = "".join(random.choices("ACGT", k=400))
parts = []
while sum(map(len, parts)) < kilobases * 1000:
    parts.append("".join(random.choices("ACGT", k=random.randint(500, 4000))) if random.random() < 0.9 else repeat)
genome = "".join(parts)[: kilobases * 1000]


def fasta(name, sequence):
    print(f">{name}")
    for at in range(0, len(sequence), 70):
        print(sequence[at : at + 70])


if what == "genome":
    size = len(genome) // 4
    for n in range(4):
        fasta(f"chr{n + 1}", genome[n * size : (n + 1) * size])
elif what == "reads":
    for n in range(count):
        at = random.randrange(len(genome) - 120)
        read = list(genome[at : at + 100])
        for _ in range(random.randint(0, 3)):
            read[random.randrange(100)] = random.choice("ACGT")
        print(f"@read{n}\n{''.join(read)}\n+\n{''.join(random.choices('FGHI:,', k=100))}")
elif what == "proteins":
    for n in range(count):
        fasta(f"p{n}", "".join(random.choices("ACDEFGHIKLMNPQRSTVWY", k=random.randint(80, 500))))
else:
    ancestor = "".join(random.choices("ACDEFGHIKLMNPQRSTVWY" if kilobases == 0 else "ACGT", k=350))
    letters = "ACDEFGHIKLMNPQRSTVWY" if kilobases == 0 else "ACGT"
    for n in range(count):
        own = [random.choice(letters) if random.random() < 0.25 else letter for letter in ancestor]
        del own[random.randrange(300) :][: random.randint(0, 8)]
        fasta(f"s{n}", "".join(own))
