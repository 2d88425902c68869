# SPDX-License-Identifier: Apache-2.0
"""A web application of Django in one file: the ORM over sqlite, templates, JSON."""
import json
import os

import django
from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.template import engines
from django.urls import path

settings.configure(
    SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], INSTALLED_APPS=[],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("WORK", ".") + "/db.sqlite3", "CONN_MAX_AGE": 60}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 400}}},
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection  # noqa: E402

PAGE = engines["django"].from_string("<html><ul>{% for row in rows %}<li>{{ row.1 }}: {{ row.2 }}</li>{% endfor %}</ul></html>")


def rows(count):
    with connection.cursor() as cursor:
        cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s) SELECT i, 'item ' || i, i * 1.5 FROM n", [count])
        return cursor.fetchall()


def make(request, key, count):
    found = rows(count)
    cache.set(key, json.dumps(found))
    return JsonResponse({"rows": found})


def parse(request, key, count):
    return HttpResponse(str(len(json.loads(cache.get(key) or "[]"))))


def page(request, key, count):
    return HttpResponse(PAGE.render({"rows": rows(count)}))


def root(request):
    return HttpResponse("ok")


urlpatterns = [path("json/<str:key>/<int:count>", make), path("parse/<str:key>/<int:count>", parse), path("page/<str:key>/<int:count>", page), path("", root)]
application = get_wsgi_application()
