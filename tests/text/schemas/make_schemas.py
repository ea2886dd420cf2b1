"""Writes schemas.jsonl: schemas in the style of public API descriptions and of what pydantic and zod emit.

Each line is {"name", "schema"}. Real descriptions differ in size, not in kind, from these.

    python3 tests/text/schemas/make_schemas.py > tests/text/schemas/schemas.jsonl
"""
import itertools
import json

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))
DATE_TIME = {"type": "string", "format": "date-time"}
URI = {"type": "string", "format": "uri"}
EMAIL = {"type": "string", "format": "email"}
OUT = []


def add(name, schema):
    OUT.append({"name": name, "schema": schema})


def obj(properties, required=None, closed=True, **more):
    """An object; required: all, unless given."""
    out = {"type": "object", "properties": properties, "required": list(properties) if required is None else required}
    if closed:
        out["additionalProperties"] = False
    return {**out, **more}


def ref(name, root="$defs"):
    return {"$ref": f"#/{root}/{name}"}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def pydantic():
    """Models: titles everywhere, anyOf with null and default, $defs, discriminated unions."""

    def field(name, schema):
        return {**schema, "title": name.replace("_", " ").title()}

    def model(name, fields, **more):
        required = [k for k, v in fields.items() if "default" not in v]
        out = {"properties": {k: field(k, v) for k, v in fields.items()}, "title": name, "type": "object", **more}
        return {**out, "required": required} if required else out

    optional = lambda s: {"anyOf": [s, {"type": "null"}], "default": None}
    kinds = {"str": STRING, "int": INTEGER, "float": NUMBER, "bool": BOOLEAN, "datetime": DATE_TIME,
             "uuid": {"type": "string", "format": "uuid"}, "date": {"type": "string", "format": "date"},
             "ge": {"type": "integer", "minimum": 0, "maximum": 120}, "gt": {"type": "number", "exclusiveMinimum": 0},
             "constr": {"type": "string", "minLength": 1, "maxLength": 20},
             "pattern": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
             "list": array(STRING, maxItems=4), "tuple": {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2},
             "dict": {"type": "object", "additionalProperties": INTEGER},
             "literal": {"enum": ["low", "medium", "high"], "type": "string"}, "const": {"const": "v1", "type": "string"}}
    for name, kind in kinds.items():
        add(f"pydantic-{name}", model("Item", {"name": STRING, "value": kind}, additionalProperties=False))
        add(f"pydantic-optional-{name}", model("Item", {"name": STRING, "value": optional(kind)}, additionalProperties=False))
        add(f"pydantic-dict-{name}", model("Map", {"map": {"type": "object", "additionalProperties": kind, "maxProperties": 3}}, additionalProperties=False))
        add(f"pydantic-pair-{name}", model("Pair", {"pair": {"type": "array", "prefixItems": [kind, STRING], "minItems": 2, "maxItems": 2}}, additionalProperties=False))
        add(f"strict-nullable-{name}", obj({"value": {"anyOf": [kind, {"type": "null"}]}, "note": {"type": ["string", "null"]}}))
        add(f"pydantic-list-{name}", model("Items", {"values": array(kind, maxItems=3)}, additionalProperties=False))
    cat = model("Cat", {"kind": {"const": "cat", "type": "string"}, "lives": INTEGER})
    dog = model("Dog", {"kind": {"const": "dog", "type": "string"}, "barks": BOOLEAN, "owner": optional(ref("Person"))})
    person = model("Person", {"name": STRING, "email": EMAIL})
    union = {"oneOf": [ref("Cat"), ref("Dog")], "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}}}
    for closed in ({}, {"additionalProperties": False}):
        defs = {"Cat": {**cat, **closed}, "Dog": {**dog, **closed}, "Person": {**person, **closed}}
        add(f"pydantic-union-{len(closed)}", {**model("Zoo", {"animal": union}, **closed), "$defs": defs})
        add(f"pydantic-unions-{len(closed)}", {**model("Zoo", {"animals": array(union, maxItems=3)}, **closed), "$defs": defs})
        add(f"pydantic-plain-union-{len(closed)}", {**model("Zoo", {"animal": {"anyOf": [ref("Cat"), ref("Dog"), STRING]}}, **closed), "$defs": defs})
    node = model("Node", {"value": INTEGER, "children": {**array(ref("Node"), maxItems=2), "default": []}}, additionalProperties=False)
    add("pydantic-tree", {"$defs": {"Node": node}, "$ref": "#/$defs/Node"})
    add("pydantic-enum-ref", {**model("Task", {"level": ref("Level"), "next": optional(ref("Level"))}), "$defs": {"Level": {"enum": [1, 2, 3], "title": "Level", "type": "integer"}}})
    add("pydantic-v1-allof", {"title": "Job", "type": "object", "properties": {"owner": {"title": "Owner", "allOf": [ref("P", "definitions")]}}, "required": ["owner"],
                              "definitions": {"P": model("P", {"name": STRING})}})
    add("pydantic-dict-of-enum", model("Scores", {"scores": {"type": "object", "additionalProperties": NUMBER, "propertyNames": {"enum": ["a", "b"]}}}))


def zod():
    head = {"$schema": "http://json-schema.org/draft-07/schema#"}
    cases = {
        "recipe": obj({"name": STRING, "steps": array(STRING, maxItems=3), "servings": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}}),
        "nullable": obj({"a": {"type": ["string", "null"]}, "b": {"anyOf": [INTEGER, {"type": "null"}]}}),
        "literal-union": obj({"size": {"anyOf": [{"type": "string", "const": c} for c in "SML"]}}),
        "discriminated": obj({"shape": {"anyOf": [obj({"type": {"type": "string", "const": "circle"}, "r": NUMBER}), obj({"type": {"type": "string", "const": "square"}, "side": NUMBER})]}}),
        "tuple": obj({"pair": {"type": "array", "minItems": 2, "maxItems": 2, "items": [STRING, NUMBER]}}),
        "record": obj({"map": {"type": "object", "additionalProperties": STRING}}),
        "email": obj({"email": EMAIL, "url": URI, "ip": {"type": "string", "format": "ipv4"}, "at": DATE_TIME}),
        "lengths": obj({"a": {"type": "string", "minLength": 3, "maxLength": 8}, "b": array(INTEGER, minItems=1, maxItems=3)}),
        "optional": obj({"a": STRING, "b": NUMBER}, required=["a"]),
        "strip": obj({"a": STRING}, closed=False),
        "intersection": {"allOf": [obj({"a": STRING}, closed=False), obj({"b": NUMBER}, closed=False)], "unevaluatedProperties": False},
        "lazy": {**obj({"name": STRING, "sub": array({"$ref": "#"}, maxItems=2)})},
        "enum": obj({"color": {"type": "string", "enum": ["red", "green", "blue"]}}),
        "step": obj({"n": {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 10}}),
    }
    for name, schema in cases.items():
        add(f"zod-{name}", {**schema, **head})


def rest():
    """Shapes of large web APIs: users, issues, charges, containers, pets."""
    user = obj({"login": STRING, "id": {"type": "integer", "format": "int64", "minimum": 1}, "node_id": STRING, "avatar_url": URI, "type": STRING, "site_admin": BOOLEAN,
                "email": {"type": ["string", "null"], "format": "email"}}, required=["login", "id", "type"], title="Simple User", description="A user.")
    label = {"oneOf": [STRING, obj({"id": INTEGER, "name": STRING, "color": {"type": ["string", "null"], "pattern": "^[0-9a-f]{6}$"}, "default": BOOLEAN}, required=[])]}
    issue = obj({"number": INTEGER, "title": STRING, "state": {"type": "string", "enum": ["open", "closed"]}, "state_reason": {"type": ["string", "null"], "enum": ["completed", "not_planned", None]},
                 "user": {"anyOf": [{"type": "null"}, user]}, "labels": array(label, maxItems=3), "created_at": DATE_TIME, "closed_at": {"type": ["string", "null"], "format": "date-time"},
                 "comments": INTEGER, "body": STRING, "locked": BOOLEAN}, required=["number", "title", "state", "user", "labels"])
    money = {"type": "integer", "minimum": 0, "maximum": 99999999}
    charge = obj({"id": {"type": "string", "maxLength": 50, "pattern": "^ch_[A-Za-z0-9]{6,24}$"}, "object": {"type": "string", "enum": ["charge"]}, "amount": money, "currency": {"type": "string", "minLength": 3, "maxLength": 3},
                  "captured": BOOLEAN, "customer": {"anyOf": [{"type": "string", "maxLength": 30}, {"type": "null"}]}, "metadata": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 50}, "maxProperties": 3},
                  "created": {"type": "integer", "format": "unix-time"}, "description": {"type": "string", "maxLength": 40, "nullable": True}}, required=["id", "object", "amount", "currency"])
    quantity = {"oneOf": [{"type": "string", "pattern": "^[0-9]+(m|Mi|Gi)?$"}, {"type": "integer", "minimum": 0}]}
    container = obj({"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}, "image": STRING, "command": array(STRING, maxItems=3),
                     "ports": array(obj({"containerPort": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}, "protocol": {"type": "string", "enum": ["TCP", "UDP", "SCTP"], "default": "TCP"}}, required=["containerPort"]), maxItems=2),
                     "env": array(obj({"name": STRING, "value": STRING}, required=["name"]), maxItems=2), "resources": obj({"limits": {"type": "object", "additionalProperties": quantity, "maxProperties": 2}}, required=[])}, required=["name", "image"])
    pod = obj({"apiVersion": {"const": "v1"}, "kind": {"const": "Pod"}, "metadata": obj({"name": STRING, "labels": {"type": "object", "additionalProperties": STRING, "maxProperties": 2}}, required=["name"]),
               "spec": obj({"containers": array(container, minItems=1, maxItems=2), "restartPolicy": {"type": "string", "enum": ["Always", "OnFailure", "Never"]}}, required=["containers"])})
    pet = {"type": "object", "required": ["name", "photoUrls"], "properties": {"id": {"type": "integer", "format": "int64", "example": 10}, "name": {"type": "string", "example": "doggie"},
           "category": ref("Category", "definitions"), "photoUrls": {**array(STRING, maxItems=2), "xml": {"wrapped": True}}, "tags": array(ref("Category", "definitions"), maxItems=2), "status": {"type": "string", "enum": ["available", "pending", "sold"]}},
           "definitions": {"Category": {"type": "object", "properties": {"id": {"type": "integer", "format": "int64"}, "name": STRING}, "xml": {"name": "category"}, "additionalProperties": False}}, "additionalProperties": False, "xml": {"name": "pet"}}
    address = obj({"street": STRING, "city": STRING, "zip": {"type": "string", "pattern": "^\\d{5}(-\\d{4})?$"}, "country": {"type": "string", "pattern": "^[A-Z]{2}$"}})
    order = obj({"id": {"type": "string", "format": "uuid"}, "lines": array(obj({"sku": {"type": "string", "pattern": "^[A-Z]{3}\\d{4}$"}, "quantity": {"type": "integer", "minimum": 1, "maximum": 99}, "price": {"type": "number", "minimum": 0, "multipleOf": 0.01}}), minItems=1, maxItems=3),
                 "ship_to": address, "bill_to": {"anyOf": [address, {"type": "null"}]}, "placed": {"type": "string", "format": "date"}})
    weather = obj({"location": STRING, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}, required=["location"], strict=True)
    point = obj({"type": {"const": "Point"}, "coordinates": {"type": "array", "prefixItems": [{"type": "number", "minimum": -180, "maximum": 180}, {"type": "number", "minimum": -90, "maximum": 90}], "minItems": 2, "items": False}})
    line = obj({"type": {"const": "LineString"}, "coordinates": array(array(NUMBER, minItems=2, maxItems=2), minItems=2, maxItems=3)})
    feature = obj({"type": {"const": "Feature"}, "geometry": {"oneOf": [{"type": "null"}, point, line]}, "properties": {"type": ["object", "null"], "additionalProperties": STRING}})
    for name, schema in {"user": user, "label": {"type": "object", "properties": {"label": label}, "required": ["label"], "additionalProperties": False}, "issue": issue, "charge": charge, "container": container,
                         "pod": pod, "pet": pet, "address": address, "order": order, "weather": weather, "point": point, "line": line, "feature": feature}.items():
        add(f"rest-{name}", schema)
        listed = {k: v for k, v in schema.items() if k != "definitions"}
        page = obj({"total": {"type": "integer", "minimum": 0}, "items": array(listed, maxItems=2), "next": {"type": ["string", "null"], "format": "uri-reference"}})
        page["definitions"] = schema.get("definitions", {})
        add(f"rest-page-{name}", page)
        error = obj({"code": {"type": "integer", "minimum": 400, "maximum": 599}, "message": STRING})
        both = {"oneOf": [obj({"ok": {"const": True}, "data": listed}), obj({"ok": {"const": False}, "error": error})], "definitions": schema.get("definitions", {})}
        add(f"rest-result-{name}", both)


def logic():
    """Conditions, exclusions and dependencies."""
    for name, keys in {"two": "ab", "three": "abc"}.items():
        properties = {k: INTEGER for k in keys}
        add(f"logic-one-of-required-{name}", obj(properties, required=[], oneOf=[{"required": [k]} for k in keys]))
        add(f"logic-any-of-required-{name}", obj(properties, required=[], anyOf=[{"required": [k]} for k in keys]))
        add(f"logic-dependent-{name}", obj(properties, required=[], dependentRequired={keys[0]: [keys[1]]}))
    kinds = ["card", "bank", "cash"]
    for n in (1, 2):
        rules = [{"if": {"properties": {"kind": {"const": k}}, "required": ["kind"]}, "then": {"required": [f"{k}_number"]}} for k in kinds[:n]]
        add(f"logic-if-{n}", obj({"kind": {"enum": kinds}, "card_number": STRING, "bank_number": STRING}, required=["kind"], allOf=rules))
    add("logic-if-else", obj({"country": {"enum": ["US", "NL"]}, "code": STRING}, **{"if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}}, "else": {"properties": {"code": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}}}))
    add("logic-not-values", obj({"name": {"type": "string", "not": {"enum": ["admin", "root"]}}}))
    add("logic-not-number", obj({"n": {"type": "integer", "minimum": -5, "maximum": 5, "not": {"const": 0}}}))
    add("logic-not-both", obj({"a": INTEGER, "b": INTEGER}, required=[], **{"not": {"required": ["a", "b"]}}))
    add("logic-dependent-schema", obj({"card": INTEGER, "address": STRING}, required=[], dependentSchemas={"card": {"required": ["address"]}}))
    add("logic-draft4", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}}, "required": ["n"], "additionalProperties": False, "dependencies": {"n": ["n"]}})
    add("logic-names", {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,4}$"}, "additionalProperties": INTEGER, "maxProperties": 3})
    add("logic-patterns", {"type": "object", "patternProperties": {"^n_": INTEGER, "^s_": STRING}, "additionalProperties": False, "maxProperties": 3})
    add("logic-not-empty", {"type": "object", "additionalProperties": INTEGER, "minProperties": 1, "maxProperties": 3})
    add("logic-ranges", {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "integer", "minimum": 100, "maximum": 199}, {"type": "string", "maxLength": 3}]})
    add("logic-base", {"$defs": {"Base": obj({"id": INTEGER}, closed=False)}, "allOf": [ref("Base"), obj({"name": STRING}, closed=False)], "unevaluatedProperties": False})
    add("logic-expression", {"$ref": "#/$defs/E", "$defs": {"E": {"oneOf": [INTEGER, ref("Add"), ref("Neg")]}, "Add": obj({"op": {"const": "+"}, "l": ref("E"), "r": INTEGER}), "Neg": obj({"op": {"const": "-"}, "e": ref("E")})}})


def numbers():
    bounds = [("minimum", -3), ("minimum", 7), ("exclusiveMinimum", 0), ("maximum", 12), ("exclusiveMaximum", 100), ("minimum", 0.5), ("maximum", -0.25)]
    for kind, (a, b) in itertools.product(("integer", "number"), itertools.combinations(bounds, 2)):
        if a[0] == b[0] or kind == "integer" and isinstance(a[1] + b[1], float):
            continue
        low = max((v for k, v in (a, b) if "inimum" in k), default=-1e9)
        high = min((v for k, v in (a, b) if "aximum" in k), default=1e9)
        if low + 1 < high:
            add(f"number-{kind}-{a[0]}-{a[1]}-{b[0]}-{b[1]}", obj({"n": {"type": kind, a[0]: a[1], b[0]: b[1]}}))


for part in (pydantic, zod, rest, logic, numbers):
    part()
for line in OUT:
    print(json.dumps(line, separators=(",", ":")))
