# SPDX-License-Identifier: Apache-2.0
"""Visitors of Chroma: chroma.py MIX. `fill` makes collections of texts with their vectors by its API; the others use them."""
import math
import uuid

from visits import Site, Words, main

COLLECTIONS, TEXTS, WIDTH, TOPICS = 3, 4000, 384, 40
BASE = "/api/v2/tenants/default_tenant/databases/default_database/collections"
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.site = rng, Site(args.port, base=BASE)
        self.known = [one["id"] for one in self.site.json("GET", "") if one["name"].startswith("texts")]

    def place(self):
        return self.rng.choice(self.known)

    def vector(self):
        """Like that of a text on one of the topics: vectors of one topic are near each other."""
        topic = self.rng.randrange(TOPICS)
        raw = [math.sin((topic + 1) * (place + 1)) + self.rng.gauss(0, 0.4) for place in range(WIDTH)]
        length = math.sqrt(sum(value * value for value in raw))
        return [round(value / length, 5) for value in raw]

    def batch(self, count):
        return {"ids": [uuid.UUID(int=self.rng.getrandbits(128)).hex for _ in range(count)], "embeddings": [self.vector() for _ in range(count)],
                "documents": [WORDS.text(self.rng, 60) for _ in range(count)],
                "metadatas": [{"year": 1990 + self.rng.randrange(36), "language": self.rng.choice(["en", "de", "fr"])} for _ in range(count)]}

    def nearest(self):
        self.site.json("POST", f"/{self.place()}/query", {"query_embeddings": [self.vector()], "n_results": 10, "include": ["documents", "distances"]})

    def filtered(self):
        asked = {"query_embeddings": [self.vector(), self.vector()], "n_results": 20, "where": {"year": {"$gte": 2000 + self.rng.randrange(20)}}}
        self.site.json("POST", f"/{self.place()}/query", asked)

    def containing(self):
        asked = {"where_document": {"$contains": WORDS.some(self.rng, 1)[0]}, "limit": 50, "include": ["documents", "metadatas"]}
        self.site.json("POST", f"/{self.place()}/get", asked)

    def some(self):
        self.site.json("POST", f"/{self.place()}/get", {"limit": 200, "offset": self.rng.randrange(TEXTS - 200), "include": ["embeddings", "documents"]})

    def count(self):
        self.site.json("GET", f"/{self.place()}/count")

    def add(self):
        self.site.json("POST", f"/{self.place()}/upsert", self.batch(100))

    def replace(self):
        place = self.place()
        found = self.site.json("POST", f"/{place}/get", {"limit": 50, "offset": self.rng.randrange(TEXTS - 50), "include": []})["ids"]
        self.site.json("POST", f"/{place}/delete", {"ids": found})
        self.site.json("POST", f"/{place}/upsert", self.batch(50))

    def whole(self):
        """A collection comes, is searched, and goes."""
        name = f"visit{uuid.uuid4().hex}"
        made = self.site.json("POST", "", {"name": name})["id"]
        self.site.json("POST", f"/{made}/add", self.batch(100))
        self.site.json("POST", f"/{made}/query", {"query_embeddings": [self.vector()], "n_results": 5})
        self.site.ask("DELETE", f"/{name}")

    def all(self):
        for number in range(COLLECTIONS):
            made = self.site.json("POST", "", {"name": f"texts{number}"})["id"]
            for _ in range(TEXTS // 100):
                self.site.json("POST", f"/{made}/add", self.batch(100))


MIXES = {
    "fill": {"all": 1},
    "search": {"nearest": 6, "filtered": 2},
    "write": {"add": 3, "replace": 2, "whole": 1},
    "read": {"containing": 2, "some": 3, "count": 1},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
