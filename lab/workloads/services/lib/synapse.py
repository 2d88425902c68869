# SPDX-License-Identifier: Apache-2.0
"""Visitors of Synapse: synapse.py MIX. `fill` makes people, rooms, messages and pictures by its API; the others use them."""
import io
import urllib.parse
import uuid

from visits import Site, Words, main

PEOPLE, ROOMS, MESSAGES, PICTURES = 20, 10, 1000, 16
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.port, self.since = rng, args.port, None
        if args.mix != "fill":
            self.site = self.log_in(number % PEOPLE)
            self.rooms = sorted(self.site.json("GET", "/_matrix/client/v3/joined_rooms")["joined_rooms"])
            self.pictures = None

    def log_in(self, number):
        site = Site(self.port)
        login = {"type": "m.login.password", "identifier": {"type": "m.id.user", "user": f"person{number}"}, "password": "a long secret"}
        site.headers["Authorization"] = "Bearer " + site.json("POST", "/_matrix/client/v3/login", login)["access_token"]
        return site

    def room(self):
        return urllib.parse.quote(self.rng.choice(self.rooms))

    def send(self):
        body = WORDS.text(self.rng, self.rng.choice([5, 10, 20, 200]))
        return self.site.json("PUT", f"/_matrix/client/v3/rooms/{self.room()}/send/m.room.message/{uuid.uuid4()}", {"msgtype": "m.text", "body": body})

    def read(self):
        room = self.room()
        found = self.site.json("GET", f"/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=60")
        last = urllib.parse.quote(found["chunk"][0]["event_id"])
        self.site.json("POST", f"/_matrix/client/v3/rooms/{room}/receipt/m.read/{last}", {})

    def sync(self):
        since = f"&since={self.since}" if self.since else ""
        self.since = self.site.json("GET", f"/_matrix/client/v3/sync?timeout=0{since}")["next_batch"]

    def whole_sync(self):
        """What a new device asks for."""
        self.site.json("GET", "/_matrix/client/v3/sync?timeout=0&full_state=true")

    def typing(self):
        name = urllib.parse.quote(self.site.json("GET", "/_matrix/client/v3/account/whoami")["user_id"])
        self.site.json("PUT", f"/_matrix/client/v3/rooms/{self.room()}/typing/{name}", {"typing": True, "timeout": 3000})

    def search(self):
        asked = {"search_categories": {"room_events": {"search_term": WORDS.some(self.rng, 1)[0], "order_by": "recent", "event_context": {"before_limit": 2}}}}
        self.site.json("POST", "/_matrix/client/v3/search", asked)

    def members(self):
        self.site.json("GET", f"/_matrix/client/v3/rooms/{self.room()}/members")

    def state(self):
        self.site.json("GET", f"/_matrix/client/v3/rooms/{self.room()}/state")

    def directory(self):
        self.site.json("POST", "/_matrix/client/v3/publicRooms", {"limit": 50})
        self.site.json("POST", "/_matrix/client/v3/user_directory/search", {"search_term": f"person{self.rng.randrange(PEOPLE)}"})

    def upload(self):
        content = photo(self.rng)
        found = self.site.ask("POST", "/_matrix/media/v3/upload?filename=photo.jpg", content, {"Content-Type": "image/jpeg"})[1]
        address = found.decode().split('"')[3]
        picture = {"msgtype": "m.image", "body": "photo.jpg", "url": address, "info": {"mimetype": "image/jpeg", "size": len(content)}}
        self.site.json("PUT", f"/_matrix/client/v3/rooms/{self.room()}/send/m.room.message/{uuid.uuid4()}", picture)

    def picture(self):
        if self.pictures is None:
            wanted = urllib.parse.quote('{"types":["m.room.message"],"contains_url":true}')
            found = [self.site.json("GET", f"/_matrix/client/v3/rooms/{urllib.parse.quote(room)}/messages?dir=b&limit=50&filter={wanted}") for room in self.rooms]
            self.pictures = [event["content"]["url"][len("mxc://"):] for one in found for event in one["chunk"]]
        return self.rng.choice(self.pictures)

    def thumbnail(self):
        size = self.rng.choice(["width=96&height=96&method=crop", "width=320&height=240&method=scale", "width=800&height=600&method=scale"])
        self.site.get(f"/_matrix/client/v1/media/thumbnail/{self.picture()}?{size}")

    def download(self):
        self.site.get(f"/_matrix/client/v1/media/download/{self.picture()}")

    def all(self):
        """The whole of the data, by one visitor."""
        people = []
        for number in range(PEOPLE):
            site = Site(self.port)
            asked = {"username": f"person{number}", "password": "a long secret", "auth": {"type": "m.login.dummy"}}
            site.headers["Authorization"] = "Bearer " + site.json("POST", "/_matrix/client/v3/register", asked)["access_token"]
            people.append(site)
        self.rooms = []
        for number in range(ROOMS):
            asked = {"preset": "public_chat", "visibility": "public", "name": WORDS.title(self.rng), "room_alias_name": f"room{number}", "topic": WORDS.title(self.rng)}
            room = people[number].json("POST", "/_matrix/client/v3/createRoom", asked)["room_id"]
            for site in people[:number] + people[number + 1:]:
                site.json("POST", f"/_matrix/client/v3/join/{urllib.parse.quote(room)}", {})
            self.rooms.append(room)
        for number in range(MESSAGES):
            self.site = self.rng.choice(people)
            self.upload() if number % (MESSAGES // PICTURES) == 0 else self.send()


def photo(rng):
    """A photograph as a telephone sends it."""
    from PIL import Image
    name = rng.choice(["Aqua", "Dune", "Garden", "Storm", "Wood"])
    picture = Image.open(f"/usr/share/backgrounds/mate/nature/{name}.jpg").convert("RGB")
    width, out = rng.randrange(800, 1800), io.BytesIO()
    picture.resize((width, width * picture.height // picture.width)).save(out, "JPEG", quality=85)
    return out.getvalue()


MIXES = {
    "fill": {"all": 1},
    "talk": {"send": 5, "read": 3, "sync": 4, "typing": 1},
    "find": {"search": 3, "whole_sync": 2, "members": 2, "state": 2, "directory": 1},
    "media": {"upload": 2, "thumbnail": 4, "download": 3},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
