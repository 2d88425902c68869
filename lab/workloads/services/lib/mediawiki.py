# SPDX-License-Identifier: Apache-2.0
"""Visitors of MediaWiki: mediawiki.py MIX. `make` writes pages for its own import; the others read, edit and export."""
import io
import json
import pathlib
import uuid

from visits import Refused, Site, Words, main

PAGES, KINDS = 240, 12
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.folder = rng, pathlib.Path(args.folder)
        if args.mix == "make":
            return
        self.site = Site(args.port)
        if args.mix == "edit":
            token = self.api(action="query", meta="tokens", type="login")["query"]["tokens"]["logintoken"]
            said = self.api(action="clientlogin", username="Admin", password="a long secret", logintoken=token, loginreturnurl="http://127.0.0.1/")
            if said["clientlogin"]["status"] != "PASS":
                raise Refused(str(said))
            self.edits = self.api(action="query", meta="tokens")["query"]["tokens"]["csrftoken"]

    def api(self, **fields):
        found = json.loads(self.site.form("/api.php", {"format": "json", **fields}))
        if "error" in found and found["error"]["code"] not in ("editconflict", "readonly"):
            raise Refused(str(found["error"])[:200])
        return found

    def name(self):
        return f"Page{self.rng.randrange(PAGES)}"

    # what people read
    def page(self):
        self.site.get(f"/index.php?title={self.name()}")

    def assets(self):
        self.site.get("/load.php?lang=en&modules=mediawiki.skinning.interface%7Cskins.vector.styles.legacy&only=styles&skin=vector")

    def history(self):
        self.site.get(f"/index.php?title={self.name()}&action=history")

    def category(self):
        self.site.get(f"/index.php?title=Category:Kind{self.rng.randrange(KINDS)}")

    def recent(self):
        self.site.get("/index.php?title=Special:RecentChanges&limit=100&days=9999&hidebots=0")

    def search(self):
        self.site.get(f"/index.php?title=Special:Search&search={WORDS.some(self.rng, 1)[0]}&fulltext=1")

    def linked(self):
        self.site.get(f"/index.php?title=Special:WhatLinksHere/{self.name()}")

    # what they write
    def edit(self):
        self.api(action="edit", title=self.name(), text=self.wiki(), summary=WORDS.title(self.rng), token=self.edits)

    def append(self):
        self.api(action="edit", title=self.name(), appendtext=f"\n== {WORDS.title(self.rng)} ==\n{WORDS.text(self.rng, 80)}", token=self.edits)

    def preview(self):
        self.api(action="parse", text=self.wiki(), title=self.name(), contentmodel="wikitext", preview="1")

    def upload(self):
        from PIL import Image
        picture, out = Image.open("/usr/share/backgrounds/mate/nature/Dune.jpg").convert("RGB"), io.BytesIO()
        width = self.rng.randrange(400, 1200)
        picture.resize((width, width * picture.height // picture.width)).save(out, "JPEG")
        fields = {"action": "upload", "format": "json", "filename": f"P{uuid.uuid4().hex}.jpg", "ignorewarnings": "1", "token": self.edits}
        said = json.loads(self.site.upload("/api.php", fields, [("file", "p.jpg", "image/jpeg", out.getvalue())]))
        if said.get("upload", {}).get("result") != "Success":
            raise Refused(str(said)[:200])

    # what programs ask for
    def export(self):
        pages = "\n".join(self.name() for _ in range(20))
        self.site.form("/index.php?title=Special:Export&action=submit", {"pages": pages, "curonly": "1"})

    def parse(self):
        self.api(action="parse", page=self.name(), prop="text|links|categories|sections")

    def listed(self):
        self.api(action="query", list="search", srsearch=WORDS.some(self.rng, 1)[0], srlimit="50")
        self.api(action="query", generator="allpages", gaplimit="50", prop="revisions|categories", rvprop="content|timestamp")

    def compare(self):
        self.api(action="compare", fromtitle=self.name(), totitle=self.name())

    def wiki(self):
        rng, parts = self.rng, []
        for _ in range(rng.randrange(3, 10)):
            rows = "".join(f"|-\n| {WORDS.title(rng)} || {rng.randrange(999)} || [[{self.name()}]]\n" for _ in range(rng.randrange(2, 12)))
            parts.append(f"== {WORDS.title(rng)} ==\n{WORDS.text(rng, 150)} See [[{self.name()}|{WORDS.title(rng)}]].<ref>{WORDS.title(rng)}</ref>\n\n"
                         f"* '''{WORDS.title(rng)}'''\n* ''{WORDS.title(rng)}''\n\n{{{{Box|name={WORDS.title(rng)}|kind={rng.randrange(KINDS)}}}}}\n"
                         f'{{| class="wikitable sortable"\n! a !! b !! c\n{rows}|}}')
        return "\n\n".join(parts) + f"\n\n<references />\n[[Category:Kind{rng.randrange(KINDS)}]]"

    def pages(self):
        """A file for each page, and a template that many of them use."""
        box = "<div style=\"float:right\">{{#if:{{{name|}}}|'''{{{name}}}'''|none}} {{#switch:{{{kind}}}|0=zero|1=one|#default={{#expr:{{{kind}}}*7}}}}</div>"
        (self.folder / "Template:Box.txt").write_text(box)
        for number in range(PAGES):
            (self.folder / f"Page{number}.txt").write_text(self.wiki())


MIXES = {
    "make": {"pages": 1},
    "read": {"page": 12, "assets": 2, "history": 2, "category": 2, "recent": 1, "search": 2, "linked": 1},
    "edit": {"edit": 3, "append": 3, "preview": 3, "upload": 1},
    "export": {"export": 2, "parse": 3, "listed": 2, "compare": 2},
}

if __name__ == "__main__":
    main(Visitor, MIXES, {"folder": "."})
