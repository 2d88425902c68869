# SPDX-License-Identifier: Apache-2.0
# document.py SECTIONS markdown|rst|docbook|tex|man|html|svg|ms: a made-up document in that language on standard output.
import random
import sys

random.seed(8)
sections, form = int(sys.argv[1]), sys.argv[2]
stock = ["".join(random.choices("aeioubcdlmnrst", k=random.randint(2, 9))) for _ in range(2000)]


def prose(words):
    return " ".join(random.choices(stock, k=words)).capitalize() + "."


def markdown(n):
    table = "\n".join(f"| {prose(2)} | {random.randint(1, 999)} |" for _ in range(8))
    bullets = "\n".join(f"- {prose(6)} `{random.choice(stock)}` and *{random.choice(stock)}*" for _ in range(5))
    return f"## {n} {prose(4)}\n\n{prose(60)}\n\n{bullets}\n\n| a | b |\n| --- | --- |\n{table}\n\n```c\nint f(void) {{ return {n}; }}\n```\n\n> {prose(20)} [link](http://localhost/{n})\n"


def rst(n):
    title = f"{n} {prose(4)}"
    bullets = "\n".join(f"- {prose(6)} ``{random.choice(stock)}`` and *{random.choice(stock)}*" for _ in range(5))
    return f"{title}\n{'=' * len(title)}\n\n{prose(60)}\n\n{bullets}\n\n::\n\n    code {n}\n\n.. note:: {prose(12)}\n"


def docbook(n):
    items = "".join(f"<listitem><para>{prose(8)}</para></listitem>" for _ in range(6))
    return f"<section xml:id='s{n}'><title>{prose(4)}</title><para>{prose(60)}</para><itemizedlist>{items}</itemizedlist><para><emphasis>{prose(5)}</emphasis></para></section>"


def tex(n):
    return f"\\section{{{prose(4)}}}\n{prose(150)}\n\\begin{{equation}} \\sum_{{i=1}}^{{{n + 2}}} \\frac{{i^2+{n}}}{{\\sqrt{{i}}}} = \\int_0^{{{n}}} x^2\\,dx \\end{{equation}}\n\\begin{{itemize}}\n" + "".join(f"\\item {prose(12)}\n" for _ in range(4)) + "\\end{itemize}\n"


def man(n):
    return f".SH {prose(2)}\n{prose(60)}\n" + "".join(f".TP\n.B \\-\\-{random.choice(stock)}\n{prose(15)}\n" for _ in range(6))


def ms(n):
    rows = "".join(f"{random.choice(stock)}\t{random.randint(1, 999)}\n" for _ in range(6))
    return f".NH\n{prose(4)}\n.PP\n{prose(90)}\n.TS\nl n.\n{rows}.TE\n.EQ\nx sup {n} over {{ y + {n} }} = sqrt {{ a sub i }}\n.EN\n"


def html(n):
    rows = "".join(f"<tr><td>{prose(3)}</td><td><b>{random.randint(1, 999)}</b></td></tr>" for _ in range(10))
    return f"<div class='c{n % 7}'><h2>{prose(4)}</h2><p>{prose(40)} <a href='#{n}'>{prose(2)}</a></p><table>{rows}</table><ul>" + "".join(f"<li>{prose(5)}</li>" for _ in range(5)) + "</ul></div>"


def svg(n):
    x, y = random.randrange(900), random.randrange(900)
    return f"<g transform='rotate({n % 360} {x} {y})'><path d='M{x} {y} C {x + 40} {y - 60} {x + 90} {y + 70} {x + 120} {y}' fill='rgb({n % 255},90,120)' opacity='0.6' stroke='black'/><circle cx='{x}' cy='{y}' r='{n % 40 + 3}' fill='url(#g)'/><text x='{x}' y='{y}' font-size='12'>{random.choice(stock)}</text></g>"


before = {
    "markdown": "# Document\n\n", "rst": "", "man": '.TH DOCUMENT 1 "2020-01-01"\n', "ms": ".TL\nDocument\n.AU\nsuite\n",
    "docbook": "<?xml version='1.0'?><article xmlns='http://docbook.org/ns/docbook' version='5.0'><title>Document</title>",
    "tex": "\\documentclass{article}\n\\begin{document}\n", "html": "<!DOCTYPE html><html><head><title>d</title></head><body>",
    "svg": "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='1000'><defs><radialGradient id='g'><stop offset='0' stop-color='red'/><stop offset='1' stop-color='blue'/></radialGradient></defs>",
}  # fmt: skip
after = {"docbook": "</article>", "tex": "\\end{document}\n", "html": "</body></html>", "svg": "</svg>"}
make = {"markdown": markdown, "rst": rst, "docbook": docbook, "tex": tex, "man": man, "ms": ms, "html": html, "svg": svg}[form]
print(before[form])
for n in range(sections):
    print(make(n))
print(after.get(form, ""))
