"""MkDocs hook: a link to a file of the repository outside docs/ becomes the file's path, because the site has no such page."""

import posixpath
import re

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown, page, **_):
    folder = posixpath.dirname(page.file.src_uri)

    def replace(found):
        text, target = found.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target.split("#")[0]))
        if re.match(r"[a-z]+:|#|/", target) or path.startswith("docs/"):
            return found.group(0)
        return f"`{path}`" if path.split("/")[-1] in text or path == text else f"{text} (`{path}`)"

    return LINK.sub(replace, markdown)
