# SPDX-License-Identifier: Apache-2.0
# api.py MODELS: a made-up web interface on standard output, in the form that the emitter of @typespec/http-client-csharp hands to
# its generator (tspCodeModel.json): models that have each other, and operations that read, list, write and delete them.
import itertools
import json
import sys

numbers = itertools.count(1)
known = {}


def numbered(thing):
    """The thing with a number for each object; where an object is met again, its number alone."""
    if isinstance(thing, list):
        return [numbered(one) for one in thing]
    if not isinstance(thing, dict):
        return thing
    if id(thing) in known:
        return {"$ref": known[id(thing)]}
    known[id(thing)] = number = str(next(numbers))
    return {"$id": number, **{key: numbered(value) for key, value in thing.items() if value is not None}}


def plain(kind):
    return {"kind": kind, "name": kind, "crossLanguageDefinitionId": f"TypeSpec.{kind}", "decorators": []}


def several(kind):
    return {"kind": "array", "name": "Array", "valueType": kind, "crossLanguageDefinitionId": "TypeSpec.Array", "decorators": []}


def labels():
    return {"kind": "dict", "keyType": plain("string"), "valueType": plain("string"), "decorators": []}


def time():
    return {**plain("utcDateTime"), "encode": "rfc3339", "wireType": plain("string")}


def choice(name, values):
    each = [{"kind": "enumvalue", "name": value, "value": value, "valueType": plain("string"), "decorators": []} for value in values]
    return {"kind": "enum", "name": name, "crossLanguageDefinitionId": f"Lab.{name}", "valueType": plain("string"), "values": each,
            "description": f"The states of {name}.", "isFixed": True, "isFlags": False, "usage": "Input,Output,Json", "decorators": []}


def model(name, properties):
    each = [
        {"kind": "property", "name": key, "serializedName": key, "description": f"The {key} of {name}.", "type": kind, "optional": n % 2 == 1,
         "readOnly": False, "discriminator": False, "flatten": False, "decorators": [], "crossLanguageDefinitionId": f"Lab.{name}.{key}"}
        for n, (key, kind) in enumerate(properties.items())
    ]
    return {"kind": "model", "name": name, "crossLanguageDefinitionId": f"Lab.{name}", "usage": "Input,Output,Json",
            "description": f"What is known of {name}.", "decorators": [], "properties": each}


def parameter(name, kind, place, of="Method", **more):
    return {"Name": name, "NameInRequest": name, "Description": f"The {name}.", "Type": kind, "Location": place, "IsApiVersion": False,
            "IsContentType": False, "IsEndpoint": False, "IsResourceParameter": False, "Explode": False, "IsRequired": True, "Kind": of,
            "Decorators": [], "SkipUrlEncoding": False, **more}


def header(name, request, is_content):
    kind = {"kind": "constant", "valueType": plain("string"), "value": "application/json", "decorators": []}
    return parameter(name, kind, "Header", "Constant", NameInRequest=request, IsContentType=is_content)


def operation(verb, thing, path, parameters, answer):
    name = f"{verb.lower()}{thing}"
    return {"Name": name, "ResourceName": thing, "Description": f"{verb} for {thing}.", "Accessibility": "public",
            "Parameters": [endpoint, *parameters, header("accept", "Accept", False)],
            "Responses": [{"StatusCodes": [200], "BodyType": answer, "BodyMediaType": "Json", "Headers": [], "IsErrorResponse": False,
                           "ContentTypes": ["application/json"]}],
            "HttpMethod": verb, "RequestBodyMediaType": "Json" if verb == "PUT" else "None", "Uri": "{endpoint}", "Path": path,
            "RequestMediaTypes": ["application/json"] if verb == "PUT" else None, "BufferResponse": True, "GenerateProtocolMethod": True,
            "GenerateConvenienceMethod": True, "CrossLanguageDefinitionId": f"Lab.{name}", "Decorators": []}


endpoint = parameter("endpoint", plain("url"), "Uri", "Client", IsEndpoint=True)
enums, models, operations = [], [], []
for n in range(int(sys.argv[1])):
    state = choice(f"State{n}", [f"{word}{n}" for word in ("open", "sold", "lost", "kept")])
    parts = model(f"Part{n}", {"name": plain("string"), "weight": plain("float64"), "made": time(), "labels": labels()})
    thing = model(f"Thing{n}", {
        "id": plain("string"), "count": plain("int32"), "price": plain("float64"), "state": state, "tags": several(plain("string")),
        "labels": labels(), "parts": several(parts), "changed": time(), "next": models[-1] if models else plain("string"),
    })
    enums.append(state)
    models += [parts, thing]
    path = [parameter("id", plain("string"), "Path")]
    body = [header("contentType", "Content-Type", True), parameter("body", thing, "Body")]
    operations += [
        operation("GET", f"Thing{n}", f"/things{n}/{{id}}", path, thing),
        operation("PUT", f"Thing{n}", f"/things{n}/{{id}}", path + body, thing),
        operation("GET", f"Part{n}", f"/parts{n}", [parameter("state", plain("string"), "Query")], parts),
    ]
client = {"Name": "LabClient", "Description": "A client of the laboratory.", "Operations": operations, "Protocol": {},
          "Parameters": [endpoint], "Decorators": []}
print(json.dumps(numbered({"Name": "Lab", "ApiVersions": [], "Enums": enums, "Models": models, "Clients": [client]}), indent=1))
