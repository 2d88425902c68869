# SPDX-License-Identifier: Apache-2.0
# problem.py KIND SIZE [SEED]: a problem for a solver on standard output: sat (random 3-SAT near the threshold), pigeons (unsatisfiable),
# lp (a CPLEX LP file of a many-dimensional knapsack), lpsolve (the same for lp_solve), smt (bit vectors), tptp, asp (colouring), graph (DOT),
# points, matrix, queens (Prolog).
import random
import sys

kind, size = sys.argv[1], int(sys.argv[2])
random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 7)


def sat():
    clauses = int(size * 4.26)
    print(f"p cnf {size} {clauses}")
    for _ in range(clauses):
        print(*(v if random.random() < 0.5 else -v for v in random.sample(range(1, size + 1), 3)), 0)


def pigeons():
    holes = size - 1
    var = lambda p, h: p * holes + h + 1
    clauses = [[var(p, h) for h in range(holes)] for p in range(size)]
    clauses += [[-var(p, h), -var(q, h)] for h in range(holes) for p in range(size) for q in range(p)]
    print(f"p cnf {size * holes} {len(clauses)}")
    for clause in clauses:
        print(*clause, 0)


def knapsack(lpsolve):
    items, limits = size, max(4, size // 5)
    value = [random.randint(10, 99) for _ in range(items)]
    weight = [[random.randint(1, 60) for _ in range(items)] for _ in range(limits)]
    total = lambda row: " + ".join(f"{w} x{n}" for n, w in enumerate(row))
    if lpsolve:
        print(f"max: {total(value)};")
        for row in weight:
            print(f"{total(row)} <= {sum(row) // 3};")
        for n in range(items):
            print(f"x{n} <= 1;")
        print("int " + ",".join(f"x{n}" for n in range(items)) + ";")
        return
    print("Maximize\n obj: " + "\n  + ".join(total(value).split(" + ")) + "\nSubject To")
    for n, row in enumerate(weight):
        print(f" c{n}: " + "\n  + ".join(total(row).split(" + ")) + f" <= {sum(row) // 3}")
    print("Binaries")
    for n in range(items):
        print(f" x{n}")
    print("End")


def smt():
    print("(set-logic QF_BV)")
    for n in range(size):
        print(f"(declare-const v{n} (_ BitVec 16))")
    for n in range(size * 2):
        a, b, c = random.sample(range(size), 3)
        op = random.choice(["bvadd", "bvmul", "bvxor", "bvand", "bvor"])
        print(f"(assert (bvule ({op} v{a} v{b}) (bvadd v{c} #x{random.randrange(1 << 16):04x})))")
    print("(check-sat)")


def tptp():
    print("fof(a1,axiom,![X,Y,Z]: mul(mul(X,Y),Z) = mul(X,mul(Y,Z))).\nfof(a2,axiom,![X]: mul(e,X) = X).\nfof(a3,axiom,![X]: mul(inv(X),X) = e).\nfof(a4,axiom,![X]: mul(X,X) = e).")
    for n in range(size):
        print(f"fof(b{n},axiom,![X]: (p{n}(X) => (p{n + 1}(mul(X,X)) | q{n}(X)))).\nfof(c{n},axiom,![X]: ~q{n}(X)).")
    print(f"fof(d,axiom,p0(e)).\nfof(goal,conjecture,(![X,Y]: mul(X,Y) = mul(Y,X)) & p{size}(e)).")


def asp():
    for n in range(size):
        print(f"node({n}).")
        for m in random.sample(range(size), 4):
            if m != n:
                print(f"edge({n},{m}).")
    print("colour(1..4). 1 { has(N,C) : colour(C) } 1 :- node(N). :- edge(A,B), has(A,C), has(B,C). #minimize { C,N : has(N,C) }. #show has/2.")


def graph():
    print("digraph g {")
    for n in range(size):
        print(f"  n{n} [label=\"node {n}\"];")
        for _ in range(2):
            print(f"  n{n} -> n{random.randrange(size)};")
    print("}")


def points():
    print(f"3\n{size}")
    for _ in range(size):
        print(*(f"{random.gauss(0, 1):.6f}" for _ in range(3)))


def matrix():
    for _ in range(size):
        print(",".join(f"{random.gauss(0, 1):.6f}" for _ in range(size)))


KINDS = {
    "sat": sat, "pigeons": pigeons, "lp": lambda: knapsack(False), "lpsolve": lambda: knapsack(True), "smt": smt,
    "tptp": tptp, "asp": asp, "graph": graph, "points": points, "matrix": matrix,
}  # fmt: skip
KINDS[kind]()
