# SPDX-License-Identifier: Apache-2.0
"""Visitors of Keycloak: keycloak.py MIX. `fill` makes a realm by its API; people log in, programs ask for tokens."""
import html
import json
import re
import time
import urllib.parse
import uuid

from visits import Refused, Site, main

PEOPLE, GROUPS = 240, 12
REALM, BACK = "/realms/lab/protocol/openid-connect", "http://127.0.0.1/back"


class Visitor:
    def __init__(self, args, rng, number):
        self.rng, self.port, self.until = rng, args.port, 0.0
        self.site, self.admin, self.fresh = Site(args.port), Site(args.port, base="/admin/realms"), None

    def person(self):
        return f"person{self.rng.randrange(PEOPLE)}"

    def tokens(self, realm=REALM, **fields):
        return json.loads(self.site.form(f"{realm}/token", fields))

    # people in a browser
    def log_in(self):
        """The form, a session, the code, tokens, a second token, and the end of the session."""
        site = Site(self.port)
        asked = {"client_id": "web", "response_type": "code", "scope": "openid profile email", "redirect_uri": BACK, "state": uuid.uuid4().hex}
        page = site.get(f"{REALM}/auth?{urllib.parse.urlencode(asked)}").decode()
        action = html.unescape(re.search(r'action="([^"]+)"', page)[1])
        path = action[action.index("/realms"):]
        site.form(path, {"username": self.person(), "password": "secret"})
        code = urllib.parse.parse_qs(urllib.parse.urlsplit(site.location).query).get("code")
        if not code:
            raise Refused("no code came back")
        got = json.loads(site.form(f"{REALM}/token", {"grant_type": "authorization_code", "client_id": "web", "code": code[0], "redirect_uri": BACK}))
        site.ask("GET", f"{REALM}/userinfo", headers={"Authorization": f"Bearer {got['access_token']}"})
        got = json.loads(site.form(f"{REALM}/token", {"grant_type": "refresh_token", "client_id": "web", "refresh_token": got["refresh_token"]}))
        site.form(f"{REALM}/logout", {"client_id": "web", "refresh_token": got["refresh_token"]})

    def account(self):
        self.site.get("/realms/lab/account/")

    # programs
    def by_password(self):
        self.fresh = self.tokens(grant_type="password", client_id="web", username=self.person(), password="secret")

    def service(self):
        self.tokens(grant_type="client_credentials", client_id="service", client_secret="secret")

    def refresh(self):
        if not self.fresh:
            self.by_password()
        self.fresh = self.tokens(grant_type="refresh_token", client_id="web", refresh_token=self.fresh["refresh_token"])

    def introspect(self):
        if not self.fresh:
            self.by_password()
        self.site.form(f"{REALM}/token/introspect", {"client_id": "service", "client_secret": "secret", "token": self.fresh["access_token"]})

    def keys(self):
        self.site.get(f"{REALM}/certs")
        self.site.get("/realms/lab/.well-known/openid-configuration")

    # administrators
    def call(self, method, path, value=None):
        if time.monotonic() > self.until:
            got = self.tokens("/realms/master/protocol/openid-connect", grant_type="password", client_id="admin-cli", username="admin", password="a long secret")
            self.admin.headers["Authorization"] = f"Bearer {got['access_token']}"
            self.until = time.monotonic() + got["expires_in"] - 15
        return self.admin.json(method, path, value)

    def search(self):
        self.call("GET", f"/lab/users?search={self.person()[:7]}&max=50")

    def page(self):
        self.call("GET", f"/lab/users?first={self.rng.randrange(PEOPLE - 100)}&max=100&briefRepresentation=false")

    def change(self):
        found = self.call("GET", f"/lab/users?username={self.person()}&exact=true")[0]
        found["attributes"] = {"room": [str(self.rng.randrange(999))]}
        self.call("PUT", f"/lab/users/{found['id']}", found)

    def hire(self):
        """A person comes, joins a group, and goes."""
        name = uuid.uuid4().hex
        self.call("POST", "/lab/users", human(name))
        found = self.call("GET", f"/lab/users?username={name}&exact=true")[0]["id"]
        group = self.rng.choice(self.call("GET", "/lab/groups"))["id"]
        self.call("PUT", f"/lab/users/{found}/groups/{group}")
        self.call("DELETE", f"/lab/users/{found}")

    def members(self):
        group = self.rng.choice(self.call("GET", "/lab/groups"))["id"]
        self.call("GET", f"/lab/groups/{group}/members?max=100")

    def export(self):
        self.call("POST", "/lab/partial-export?exportClients=true&exportGroupsAndRoles=true")

    def all(self):
        """The whole of the data: a realm with people in groups and two clients."""
        groups = [{"name": f"group{number}"} for number in range(GROUPS)]
        people = [{**human(f"person{number}"), "groups": [f"/group{number % GROUPS}"]} for number in range(PEOPLE)]
        clients = [{"clientId": "web", "publicClient": True, "directAccessGrantsEnabled": True, "standardFlowEnabled": True, "redirectUris": [BACK]},
                   {"clientId": "service", "secret": "secret", "serviceAccountsEnabled": True, "standardFlowEnabled": False}]
        realm = {"realm": "lab", "enabled": True, "sslRequired": "none", "eventsEnabled": True, "groups": groups, "clients": clients}
        self.admin.base = "/admin"
        self.call("POST", "/realms", realm)
        for place in range(0, PEOPLE, 40):  # a password takes the server a while
            self.call("POST", "/realms/lab/partialImport", {"ifResourceExists": "FAIL", "users": people[place:place + 40]})


def human(name):
    return {"username": name, "enabled": True, "email": f"{name}@example.org", "emailVerified": True, "firstName": "Given", "lastName": f"Family {name}",
            "credentials": [{"type": "password", "value": "secret", "temporary": False}]}


MIXES = {
    "fill": {"all": 1},
    "people": {"log_in": 4, "account": 1},
    "programs": {"by_password": 2, "service": 3, "refresh": 4, "introspect": 4, "keys": 2},
    "admin": {"search": 4, "page": 3, "change": 3, "hire": 2, "members": 2, "export": 1},
}

if __name__ == "__main__":
    main(Visitor, MIXES)
