#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Visitors of Redmine: redmine.py MIX. `fill` makes its projects, people, issues and pages by its API; the others use them.

A visitor logs in by the form and keeps its session. Programs call the API with the administrator's key, $REDMINE_KEY.
"""
import os
import re

from visits import Refused, Site, Words, main

PROJECTS, PEOPLE, ISSUES, PAGES = 5, 12, 240, 10
WORDS = Words()


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.number, self.port = rng, number, args.port
        self.api = Site(args.port, headers={"X-Redmine-API-Key": os.environ["REDMINE_KEY"]})
        self.site = Site(args.port)
        if args.mix != "fill":
            self.log_in(f"person{1 + number % PEOPLE}")

    def log_in(self, name):
        self.form("/login", {"username": name, "password": "a long secret"}, self.token(self.site.get("/login")))

    def token(self, page):
        return re.search(rb'name="csrf-token" content="([^"]+)"', page)[1].decode()

    def form(self, path, fields, token):
        self.site.form(path, {"authenticity_token": token, **fields})
        if self.site.status != 302:
            raise Refused(f"{path}: the form came back")

    def project(self):
        return f"project{self.rng.randrange(PROJECTS)}"

    def issue(self):
        return 1 + self.rng.randrange(ISSUES)

    # what people read
    def issues(self):
        order = self.rng.choice(["updated_on:desc", "priority:desc,id", "subject", "assigned_to,tracker"])
        self.site.get(f"/projects/{self.project()}/issues?set_filter=1&status_id=*&sort={order}&per_page=50&page={self.rng.randrange(1, 3)}")

    def one_issue(self):
        self.site.get(f"/issues/{self.issue()}")

    def overview(self):
        self.site.get(f"/projects/{self.project()}")

    def activity(self):
        self.site.get(f"/projects/{self.project()}/activity")

    def gantt(self):
        self.site.get(f"/projects/{self.project()}/issues/gantt")

    def calendar(self):
        self.site.get(f"/projects/{self.project()}/issues/calendar")

    def roadmap(self):
        self.site.get(f"/projects/{self.project()}/roadmap")

    def page(self):
        self.site.get(f"/projects/{self.project()}/wiki/Page{self.rng.randrange(PAGES)}")

    def search(self):
        self.site.get(f"/search?q={WORDS.some(self.rng, 1)[0]}&scope=all&all_words=1&titles_only=&issues=1&wiki_pages=1")

    # what they write
    def new_issue(self):
        project = self.project()
        token = self.token(self.site.get(f"/projects/{project}/issues/new"))
        fields = {"issue[tracker_id]": 1 + self.rng.randrange(3), "issue[subject]": WORDS.title(self.rng), "issue[priority_id]": 1 + self.rng.randrange(4),
                  "issue[status_id]": 1, "issue[description]": WORDS.text(self.rng, self.rng.randrange(20, 400))}
        self.form(f"/projects/{project}/issues", fields, token)

    def note(self):
        issue = self.issue()
        token = self.token(self.site.get(f"/issues/{issue}/edit"))
        fields = {"_method": "patch", "issue[notes]": WORDS.text(self.rng, self.rng.randrange(5, 200)), "issue[done_ratio]": 10 * self.rng.randrange(11)}
        self.form(f"/issues/{issue}", fields, token)

    def edit_page(self):
        path = f"/projects/{self.project()}/wiki/Page{self.rng.randrange(PAGES)}"
        page = self.site.get(path + "/edit")
        version = re.search(rb'name="content\[version\]"[^>]*value="(\d+)"|value="(\d+)"[^>]*name="content\[version\]"', page)
        fields = {"_method": "put", "content[version]": (version[1] or version[2]).decode(), "content[text]": self.wiki(), "content[comments]": "changed"}
        self.site.form(path, {"authenticity_token": self.token(page), **fields}, most=499)  # another visitor may have been faster

    def attach(self):
        content = self.rng.randbytes(self.rng.randrange(1000, 400_000))
        found = self.api.ask("POST", f"/uploads.json?filename=f{self.rng.randrange(999)}.bin", content, {"Content-Type": "application/octet-stream"})[1]
        token = re.search(rb'"token":"([^"]+)"', found)[1].decode()
        self.api.json("PUT", f"/issues/{self.issue()}.json", {"issue": {"notes": "a file", "uploads": [{"token": token, "filename": "f.bin"}]}})

    # what programs ask for
    def api_issues(self):
        self.api.json("GET", f"/issues.json?project_id={self.project()}&status_id=*&limit=100&include=relations,attachments")

    def api_issue(self):
        self.api.json("GET", f"/issues/{self.issue()}.json?include=journals,children,attachments")

    def csv(self):
        self.site.get(f"/projects/{self.project()}/issues.csv?set_filter=1&status_id=*&c[]=subject&c[]=status&c[]=description&encoding=UTF-8")

    def pdf(self):
        self.site.get(f"/issues/{self.issue()}.pdf")

    def atom(self):
        self.site.get(f"/projects/{self.project()}/activity.atom")

    def wiki(self):
        parts = [f"h2. {WORDS.title(self.rng)}\n\n{WORDS.text(self.rng, 120)}\n\n* {WORDS.title(self.rng)}\n* #{self.issue()} and [[Page{self.rng.randrange(PAGES)}]]"
                 for _ in range(self.rng.randrange(2, 7))]
        return "\n\n".join(parts) + '\n\n|_. a |_. b |\n| 1 | @code@ |\n\n<pre><code class="ruby">\nputs [1, 2].sum\n</code></pre>'

    def all(self):
        """The whole of the data, by one visitor."""
        roles = [one["id"] for one in self.api.json("GET", "/roles.json")["roles"]]
        works = [one["id"] for one in self.api.json("GET", "/enumerations/time_entry_activities.json")["time_entry_activities"]]
        people = [self.api.json("POST", "/users.json", {"user": {"login": f"person{number}", "firstname": "Person", "lastname": str(number),
                                "mail": f"person{number}@example.org", "password": "a long secret"}})["user"]["id"] for number in range(1, PEOPLE + 1)]
        versions = []
        for number in range(PROJECTS):
            name = f"project{number}"
            self.api.json("POST", "/projects.json", {"project": {"name": WORDS.title(self.rng), "identifier": name, "description": WORDS.text(self.rng, 60)}})
            for person in people:
                self.api.json("POST", f"/projects/{name}/memberships.json", {"membership": {"user_id": person, "role_ids": [self.rng.choice(roles[:2])]}})
            versions.append([self.api.json("POST", f"/projects/{name}/versions.json", {"version": {"name": f"{turn}.0", "due_date": f"2026-1{turn}-01"}})
                             ["version"]["id"] for turn in range(3)])
        for number in range(ISSUES):
            project = self.rng.randrange(PROJECTS)
            made = {"project_id": f"project{project}", "tracker_id": 1 + self.rng.randrange(3), "subject": WORDS.title(self.rng),
                    "description": WORDS.text(self.rng, self.rng.randrange(20, 400)), "assigned_to_id": self.rng.choice(people),
                    "fixed_version_id": self.rng.choice(versions[project]), "priority_id": 1 + self.rng.randrange(4),
                    "start_date": f"2026-10-{1 + self.rng.randrange(28):02}", "due_date": f"2026-11-{1 + self.rng.randrange(28):02}", "estimated_hours": 4}
            issue = self.api.json("POST", "/issues.json", {"issue": made})["issue"]["id"]
            if number % 3 == 0:
                self.api.json("PUT", f"/issues/{issue}.json", {"issue": {"notes": WORDS.text(self.rng, 60), "status_id": 2}})
                self.api.json("POST", "/time_entries.json", {"time_entry": {"issue_id": issue, "hours": 1.5, "activity_id": works[0]}})
        for number in range(PROJECTS):
            for page in range(PAGES):
                self.api.json("PUT", f"/projects/project{number}/wiki/Page{page}.json", {"wiki_page": {"text": self.wiki()}})


MIXES = {
    "fill": {"all": 1},
    "read": {"issues": 5, "one_issue": 8, "overview": 2, "activity": 2, "gantt": 1, "calendar": 1, "roadmap": 1, "page": 4, "search": 3},
    "write": {"new_issue": 3, "note": 4, "edit_page": 2, "attach": 2, "one_issue": 2},
    "export": {"api_issues": 4, "api_issue": 4, "csv": 2, "pdf": 2, "atom": 2},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
