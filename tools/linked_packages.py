"""Packages that are linked into Rust packages of this workspace, from `cargo metadata`."""


def linked(metadata, roots):
    """Identifiers of the packages that are linked into the packages `roots`."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    names = {package["name"]: package["id"] for package in metadata["packages"] if package["source"] is None}
    found, waiting = set(), [names[root] for root in roots]
    while waiting:
        identifier = waiting.pop()
        if identifier in found:
            continue
        found.add(identifier)
        for dependency in nodes[identifier]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return found
