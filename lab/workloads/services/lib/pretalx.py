# SPDX-License-Identifier: Apache-2.0
"""Visitors of pretalx: pretalx.py MIX. Its own create_test_event has made the conferences con1 to con5."""
import json
import re

from visits import Refused, Site, Words, main

OVER, ALL = ["con1", "con2", "con3"], ["con1", "con2", "con3", "con4", "con5"]
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.site, self.talks = rng, Site(args.port), {}
        if args.mix == "organisers":
            page = self.site.get("/orga/login/")
            fields = {"login_email": "admin@example.org", "login_password": "a long secret 4 us", "csrfmiddlewaretoken": self.token(page)}
            self.site.form("/orga/login/", fields, {"Referer": "http://127.0.0.1/orga/login/"})
            if self.site.status != 302:
                raise Refused("the login form came back")

    def token(self, page):
        field = re.search(rb'<input[^>]*name="?csrfmiddlewaretoken[^>]*>', page)[0]  # its pages have attributes in any order
        return re.search(rb'value="?([^"> ]+)', field)[1].decode()

    def talk(self, event):
        """The code of a talk, from the public schedule."""
        if event not in self.talks:
            found = json.loads(self.site.get(f"/{event}/schedule/export/schedule.json"))
            days = found["schedule"]["conference"]["days"]
            self.talks[event] = sorted(talk["url"].rstrip("/").rsplit("/", 1)[1] for day in days for room in day["rooms"].values() for talk in room)
        return self.rng.choice(self.talks[event])

    # guests
    def front(self):
        self.site.get(f"/{self.rng.choice(ALL)}/")

    def schedule(self):
        self.site.ask("GET", f"/{self.rng.choice(OVER)}/schedule/", headers={"Accept": "text/html"})

    def one_talk(self):
        event = self.rng.choice(OVER)
        self.site.get(f"/{event}/talk/{self.talk(event)}/")

    def speakers(self):
        self.site.get(f"/{self.rng.choice(OVER)}/speaker/")

    def feedback(self):
        event = self.rng.choice(OVER)
        path = f"/{event}/talk/{self.talk(event)}/feedback/"
        fields = {"csrfmiddlewaretoken": self.token(self.site.get(path)), "review": WORDS.text(self.rng, 40)}
        self.site.form(path, fields, {"Referer": f"http://127.0.0.1{path}"})

    def proposals(self):
        self.site.get("/con5/cfp")
        self.site.get("/con5/submit/")
        self.site.get(self.site.location)

    # organisers
    def orga(self, path):
        self.site.get(f"/orga/event/{self.rng.choice(ALL)}/{path}")

    def board(self):
        self.orga("")

    def submissions(self):
        self.orga(f"submissions/?q={WORDS.some(self.rng, 1)[0][:3]}")

    def people(self):
        self.orga("speakers/")

    def reviews(self):
        self.orga("reviews/")

    def numbers(self):
        self.orga("submissions/statistics/")

    def settings(self):
        self.orga("settings/")

    def find(self):
        self.site.get(f"/orga/nav/typeahead/?query={WORDS.some(self.rng, 1)[0][:3]}")

    # programs
    def export(self):
        self.site.get(f"/{self.rng.choice(OVER)}/schedule/export/{self.rng.choice(['schedule.json', 'schedule.xml', 'schedule.ics', 'schedule.xcal'])}")

    def feed(self):
        self.site.get(f"/{self.rng.choice(OVER)}/schedule/feed.xml")

    def api(self):
        event = self.rng.choice(OVER)
        self.site.get(f"/api/events/{event}/{self.rng.choice(['submissions/?limit=100&expand=speakers,slots', 'speakers/?limit=100', 'slots/?limit=100', 'rooms/', ''])}")


MIXES = {
    "guests": {"front": 3, "schedule": 3, "one_talk": 5, "speakers": 2, "feedback": 2, "proposals": 1},
    "organisers": {"board": 2, "submissions": 3, "people": 2, "reviews": 2, "numbers": 1, "settings": 1, "find": 2},
    "programs": {"export": 3, "feed": 1, "api": 4},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
